/* ptx_wgmma_lists: what all forms of wgmma (sm_90a) share: the names of their operands in PTX, and their groups. */
#include "include/attributes.h"

/* "%t0, %t1, .. %t9,"; the names of a work-item's sums of a tile with 8, 16, 32, .. columns, of two columns each one; the
 * numbers of the five operands behind them. */
#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define NAMES_60 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
#define NAMES_8 "%0,%1,%2,%3"
#define NAMES_16 NAMES_8 ",%4,%5,%6,%7"
#define NAMES_32 TEN() "%10,%11,%12,%13,%14,%15"
#define NAMES_64 TEN() TEN(1) TEN(2) "%30,%31"
#define NAMES_128 NAMES_60 "%60,%61,%62,%63"
#define NAMES_160 NAMES_60 TEN(6) "%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define NAMES_192 NAMES_60 TEN(6) TEN(7) TEN(8) "%90,%91,%92,%93,%94,%95"
#define NAMES_224 NAMES_60 TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) "%110,%111"
#define NAMES_256 NAMES_60 TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) \
  "%120,%121,%122,%123,%124,%125,%126,%127"
#define BEHIND_8(list) list(4, 5, 6, 7, 8)
#define BEHIND_16(list) list(8, 9, 10, 11, 12)
#define BEHIND_32(list) list(16, 17, 18, 19, 20)
#define BEHIND_64(list) list(32, 33, 34, 35, 36)
#define BEHIND_128(list) list(64, 65, 66, 67, 68)
#define BEHIND_160(list) list(80, 81, 82, 83, 84)
#define BEHIND_192(list) list(96, 97, 98, 99, 100)
#define BEHIND_224(list) list(112, 113, 114, 115, 116)
#define BEHIND_256(list) list(128, 129, 130, 131, 132)

/* Two tiles in local memory; what stands behind them; A in registers and a tile. */
#define TWO_TILES(a, b, c, d, e) "%" #a ", %" #b
#define THIRD(a, b, c, d, e) "%" #c
#define LEFT_AND_TILE(a, b, c, d, e) "{%" #a ",%" #b ",%" #c ",%" #d "}, %" #e

/* The sums of a tile with so many columns as operands of an asm statement that reads and writes them: `how` is "+f" or "+r". */
#define ACC_4(how, v, i) how(v[i]), how(v[i + 1]), how(v[i + 2]), how(v[i + 3])
#define ACC_16(how, v, i) ACC_4(how, v, i), ACC_4(how, v, i + 4), ACC_4(how, v, i + 8), ACC_4(how, v, i + 12)
#define ACC_64(how, v, i) ACC_16(how, v, i), ACC_16(how, v, i + 16), ACC_16(how, v, i + 32), ACC_16(how, v, i + 48)
#define SUMS_8(how, v) ACC_4(how, v, 0)
#define SUMS_16(how, v) ACC_4(how, v, 0), ACC_4(how, v, 4)
#define SUMS_32(how, v) ACC_16(how, v, 0)
#define SUMS_64(how, v) SUMS_32(how, v), ACC_16(how, v, 16)
#define SUMS_128(how, v) ACC_64(how, v, 0)
#define SUMS_160(how, v) SUMS_128(how, v), ACC_16(how, v, 64)
#define SUMS_192(how, v) SUMS_160(how, v), ACC_16(how, v, 80)
#define SUMS_224(how, v) SUMS_192(how, v), ACC_16(how, v, 96)
#define SUMS_256(how, v) SUMS_128(how, v), ACC_64(how, v, 64)

/* Needed before wgmma where other instructions have written its registers. */
INLINE void wgmma_fence(void) { asm volatile("//@sm_90a wgmma.fence.sync.aligned;" ::: "memory"); }

/* Closes a group: the multiplications started since the last one. */
INLINE void wgmma_commit(void) { asm volatile("//@sm_90a wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Waits for all groups but the last `pending`, a constant. */
#define wgmma_wait_all_but(pending) \
  asm volatile("//@sm_90a wgmma.wait_group.sync.aligned %0;" :: "n"(pending) : "memory")
