/* The tile registers of Intel's AMX, by inline assembly: what the kernel `amx` does with them.
 *
 *                     columns 0-15   16-31              a tile has 16 rows of 64 bytes
 *                    +-------------+-------------+
 *                    | tmm6  words | tmm7        | 16   a word of B: one column, WIDTH numbers along K
 *      64 bytes      +-------------+-------------+
 *    +-----------+   +-------------+-------------+
 *    | tmm4      |   | tmm0   sums | tmm1        | 16   one instruction adds 16 x 16 x STEP products
 *    +-----------+   +-------------+-------------+
 *    | tmm5      |   | tmm2        | tmm3        | 16
 *    +-----------+   +-------------+-------------+
 *
 * PoCL compiles for the processor that its LLVM knows, which may lack AMX. Then the assembler refuses the names of the
 * instructions. So they stand here as bytes, with fixed registers. A compiler uses no tile register by itself.
 *
 * A multiplication takes 16 cycles, a load 8 from the first-level cache. Four of each in a step: 64 cycles against 32.
 *
 * Macros: those of types.h. A and B are both bfloat16, or of 8-bit integers, signed or not.
 * Defines STEP, the elements along K in a tile, and WIDTH, those in a word of 32 bits.
 *
 * Technique: Intel, "Intel 64 and IA-32 Architectures Optimization Reference Manual", chapter on AMX.
 */
#include "include/types.h"

#define TILE 16           /* rows of a tile, and columns of a tile of sums */
#define BLOCK (2 * TILE)  /* rows and columns of the four tiles of sums */
#define ROW_BYTES 64      /* of a tile */
#define TILE_BYTES (TILE * ROW_BYTES)

#define is_bfloat16 1
#define is_int8 2
#define is_uint8 3
#define IS(type) CAT(is_, type)

/* The byte of the instruction that names the operands' signs, with tmm6 and tmm7, and its operation. */
#if IS(A_TYPE) == is_bfloat16
#define WITH_TMM6 "0x4a"
#define WITH_TMM7 "0x42"
#define OPERATION "0x5c" /* TDPBF16PS */
#elif IS(A_TYPE) == is_int8 && IS(B_TYPE) == is_int8
#define WITH_TMM6 "0x4b"
#define WITH_TMM7 "0x43"
#define OPERATION "0x5e" /* TDPBSSD */
#elif IS(A_TYPE) == is_int8
#define WITH_TMM6 "0x4a"
#define WITH_TMM7 "0x42"
#define OPERATION "0x5e" /* TDPBSUD */
#elif IS(B_TYPE) == is_int8
#define WITH_TMM6 "0x49"
#define WITH_TMM7 "0x41"
#define OPERATION "0x5e" /* TDPBUSD */
#else
#define WITH_TMM6 "0x48"
#define WITH_TMM7 "0x40"
#define OPERATION "0x5e" /* TDPBUUD */
#endif
#define WIDTH ((int)(4 / sizeof(A_T)))
#define STEP (TILE * WIDTH)

#define BYTES(list) ".byte " list "\n\t"
#define PRODUCT(operand, last) BYTES("0xc4,0xe2," operand "," OPERATION "," last)

/* All eight tiles: 16 rows of 64 bytes (LDTILECFG, palette 1). */
INLINE void configure_tiles(void)
{
  uchar set[64] ALIGNED(64);
  for (int i = 0; i < 64; ++i) set[i] = 0;
  set[0] = 1;
  for (int tile = 0; tile < 8; ++tile) {
    set[16 + 2 * tile] = ROW_BYTES;
    set[48 + tile] = TILE;
  }
  __asm__ volatile(BYTES("0xc4,0xe2,0x78,0x49,0x00") : : "a"((ulong)set) : "memory");
}

/* Without it the thread would save eight tiles at each change to another one. TILERELEASE */
INLINE void release_tiles(void)
{
  __asm__ volatile(BYTES("0xc4,0xe2,0x78,0x49,0xc0") : : : "memory");
}

/* Sums of zero. TILEZERO */
INLINE void clear_block(void)
{
  __asm__ volatile(BYTES("0xc4,0xe2,0x7b,0x49,0xc0") BYTES("0xc4,0xe2,0x7b,0x49,0xc8")
                   BYTES("0xc4,0xe2,0x7b,0x49,0xd0") BYTES("0xc4,0xe2,0x7b,0x49,0xd8") : : : "memory");
}

/* Sums of rows `stride` bytes apart: rdi the upper half, rcx the lower. */
#define DEFINE_MOVE(name, kind)                                                                                \
  INLINE void name(const ulong upper, const ulong lower, const long stride)                                    \
  {                                                                                                            \
    __asm__ volatile(BYTES("0xc4,0xe2," kind ",0x4b,0x04,0x17") BYTES("0xc4,0xe2," kind ",0x4b,0x4c,0x17,0x40") \
                     BYTES("0xc4,0xe2," kind ",0x4b,0x14,0x11") BYTES("0xc4,0xe2," kind ",0x4b,0x5c,0x11,0x40") \
                     : : "D"(upper), "c"(lower), "d"(stride) : "memory");                                      \
  }
DEFINE_MOVE(load_block, "0x7b") /* TILELOADD */
DEFINE_MOVE(store_block_at, "0x7a") /* TILESTORED */

/* sums += A(32 rows, STEP) B(STEP, 32 columns). The rows of A are `stride` bytes apart, B is two tiles after another. */
INLINE void multiply_block(const ulong upper, const ulong lower, const long stride, const ulong b)
{
  __asm__ volatile(BYTES("0xc4,0xe2,0x7b,0x4b,0x34,0x06")                      /* tmm6, (rsi,rax)     */
                   BYTES("0xc4,0xe2,0x7b,0x4b,0x24,0x17")                      /* tmm4, (rdi,rdx)     */
                   PRODUCT(WITH_TMM6, "0xc4")                                  /* tmm0 += tmm4 tmm6   */
                   BYTES("0xc4,0xe2,0x7b,0x4b,0xbc,0x06,0x00,0x04,0x00,0x00")  /* tmm7, 1024(rsi,rax) */
                   PRODUCT(WITH_TMM7, "0xcc")                                  /* tmm1 += tmm4 tmm7   */
                   BYTES("0xc4,0xe2,0x7b,0x4b,0x2c,0x11")                      /* tmm5, (rcx,rdx)     */
                   PRODUCT(WITH_TMM6, "0xd5")                                  /* tmm2 += tmm5 tmm6   */
                   PRODUCT(WITH_TMM7, "0xdd")                                  /* tmm3 += tmm5 tmm7   */
                   : : "D"(upper), "c"(lower), "d"(stride), "S"(b), "a"((long)ROW_BYTES) : "memory");
}
