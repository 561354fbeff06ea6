/* ptx_wgmma_lists: what all forms of wgmma (sm_90a) share: the names of their operands in PTX, and their groups. */
#include "include/attributes.h"

/* "%t0, %t1, .. %t9," and the names of the first 4, 8, 16, 32, 64, 80, 96, 112 and 128 operands. */
#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define NAMES_30 TEN() TEN(1) TEN(2)
#define NAMES_60 NAMES_30 TEN(3) TEN(4) TEN(5)
#define NAMES_4 "%0,%1,%2,%3"
#define NAMES_8 NAMES_4 ",%4,%5,%6,%7"
#define NAMES_16 TEN() "%10,%11,%12,%13,%14,%15"
#define NAMES_32 NAMES_30 "%30,%31"
#define NAMES_64 NAMES_60 "%60,%61,%62,%63"
#define NAMES_80 NAMES_60 TEN(6) "%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define NAMES_96 NAMES_60 TEN(6) TEN(7) TEN(8) "%90,%91,%92,%93,%94,%95"
#define NAMES_112 NAMES_60 TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) "%110,%111"
#define NAMES_128 NAMES_60 TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) \
  "%120,%121,%122,%123,%124,%125,%126,%127"

/* Accumulators as operands of an asm statement that reads and writes them: `how` is "+f" or "+r". */
#define ACC_4(how, v, i) how(v[i]), how(v[i + 1]), how(v[i + 2]), how(v[i + 3])
#define ACC_8(how, v, i) ACC_4(how, v, i), ACC_4(how, v, i + 4)
#define ACC_16(how, v, i) ACC_8(how, v, i), ACC_8(how, v, i + 8)
#define ACC_64(how, v, i) ACC_16(how, v, i), ACC_16(how, v, i + 16), ACC_16(how, v, i + 32), ACC_16(how, v, i + 48)

/* Needed before wgmma where other instructions have written its registers. */
INLINE void wgmma_fence(void) { asm volatile("//@sm_90a wgmma.fence.sync.aligned;" ::: "memory"); }

/* Closes a group: the multiplications started since the last one. */
INLINE void wgmma_commit(void) { asm volatile("//@sm_90a wgmma.commit_group.sync.aligned;" ::: "memory"); }
