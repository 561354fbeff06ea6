/* ptx_wgmma: wgmma (sm_90a), as inline PTX. A quartet, 128 work-items, multiplies two tiles in local memory:
 * D (64 x BN, in registers) += A (64 x 32 bytes of K) B (32 bytes of K x BN). The instruction is asynchronous.
 *
 * D: work-item 32 s + 4 g + t holds acc[4 j + 2 h + c] = D(16 s + g + 8 h, 8 j + 2 t + c)
 *
 *     columns 8 j +       0     1   |  2     3   |  4     5   |  6     7
 *     row 16 s + g        t = 0     |  t = 1     |  t = 2     |  t = 3       acc[4 j], acc[4 j + 1]
 *     row 16 s + g + 8    t = 0     |  t = 1     |  t = 2     |  t = 3       acc[4 j + 2], [4 j + 3]
 *
 * A and B lie in local memory as boxes of ptx_map.h. Along K, a box row holds 128 bytes of K of one row of A (column of
 * B). Across K (16-bit types only) it holds 64 rows of A (columns of B; 32 if BN is 32) at one k.
 *
 * A of TF32 or bytes may come from registers instead, as ptx_mma.h draws it: work-item 32 s + 4 g + t holds bytes
 * 4 t .. 4 t + 3 of half q of the 32 bytes of row 16 s + g + 8 h in a[h + 2 q].
 *
 * Macros: BN 32, 64, 128, 192, 256; 160 and 224 with ACROSS_B 0
 *         ELEMENT (operands.h); A_TYPE and B_TYPE, the types of 8-bit integers
 *         ACROSS_A ACROSS_B 1: stored across K, 0: along K
 * Technique: the fragment layouts and matrix descriptors of NVIDIA's PTX manual.
 */
#include "nvidia/operands.h"
#include "nvidia/ptx.h"
#include "nvidia/ptx_wgmma_lists.h"

#if !defined(BN) || !defined(ACROSS_A) || !defined(ACROSS_B)
#error "ptx_wgmma.h needs BN ACROSS_A ACROSS_B"
#elif ACROSS_B && BN % 64 == 32 && BN > 32
#error "ptx_wgmma.h: see its macros"
#endif

/* The matrix descriptor of a tile, which counts in 16 bytes. Bits 0 to 13: its address. 16 to 29: distance to the next
 * 64 rows or columns (across K). 32 to 45: distance to the next eight box rows. 62 and 63: 1, a swizzle over 128
 * bytes. WGMMA_STEP_A and WGMMA_STEP_B move it on by 32 bytes of K. */
INLINE ulong wgmma_tile(const uint address, const uint chunk_bytes)
{
  return (ulong)((address & 0x3ffff) >> 4) | (ulong)(chunk_bytes >> 4) << 16 | 64UL << 32 | 1UL << 62;
}
#define WGMMA_STEP_A (ACROSS_A ? 16 * 128 / 16 : 32 / 16)
#if ACROSS_B && BN == 32 /* boxes of 64 bytes: 2, a swizzle over 64 bytes */
INLINE ulong wgmma_right(const uint address, const uint chunk_bytes)
{
  return (ulong)((address & 0x3ffff) >> 4) | 32UL << 32 | 2UL << 62;
}
#define WGMMA_STEP_B (16 * 64 / 16)
#else
#define wgmma_right(address, chunk_bytes) wgmma_tile(address, chunk_bytes)
#define WGMMA_STEP_B (ACROSS_B ? 16 * 128 / 16 : 32 / 16)
#endif

#define WGMMA_ACC (BN / 2) /* accumulators of a work-item */

#define WGMMA_OPERANDS(v) CAT(SUMS_, BN)(WGMMA_REG, v)
#define BNAMES(behind) "{" CAT(NAMES_, BN) "}, " CAT(BEHIND_, BN)(behind) ", p"

#define wgmma_float16 "k16.f32.f16.f16 "
#define wgmma_bfloat16 "k16.f32.bf16.bf16 "
#define wgmma_float32 "k8.f32.tf32.tf32 "
#if ELEMENT_BYTES == 1
typedef int wgmma_acc;
typedef int4 wgmma_acc4;
#define WGMMA_REG "+r"
#define WGMMA_KIND "k32.s32." TEXT(PTX_BYTES(A_TYPE)) "." TEXT(PTX_BYTES(B_TYPE)) " "
#define WGMMA_TAIL ""
#else
typedef float wgmma_acc;
typedef float4 wgmma_acc4;
#define WGMMA_REG "+f"
#define WGMMA_KIND CAT(wgmma_, ELEMENT)
#if ELEMENT_BYTES == 2
#define WGMMA_TAIL ", 1, 1, " TEXT(ACROSS_A) ", " TEXT(ACROSS_B)
#else
#define WGMMA_TAIL ", 1, 1"
#endif
#endif

/* Issues D = A B + (keep ? D : 0). */
INLINE void wgmma(
    wgmma_acc *acc, const ulong a, const ulong b, const int keep)
{
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " CAT(BEHIND_, BN)(THIRD) ", 0;\n\t"
               "//@sm_90a wgmma.mma_async.sync.aligned.m64n" TEXT(BN) WGMMA_KIND BNAMES(TWO_TILES)
               WGMMA_TAIL ";\n\t}"
               : WGMMA_OPERANDS(acc) : "l"(a), "l"(b), "r"(keep) : "memory");
}

#if ELEMENT_BYTES == 4 || ELEMENT_BYTES == 1
/* Issues D += A B with A in registers. They must not change until it is done. */
INLINE void wgmma_left(wgmma_acc *acc, const uint *a, const ulong b)
{
  asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.u32 p, 0, 0;\n\t"
               "//@sm_90a wgmma.mma_async.sync.aligned.m64n" TEXT(BN) WGMMA_KIND BNAMES(LEFT_AND_TILE)
               WGMMA_TAIL ";\n\t}"
               : WGMMA_OPERANDS(acc) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");
}
#endif

/* Waits for all groups. The accumulators are its operands, so the compiler moves no use of them above it. */
INLINE void wgmma_wait(wgmma_acc *acc)
{
  asm volatile("//@sm_90a wgmma.wait_group.sync.aligned 0;" : WGMMA_OPERANDS(acc) : : "memory");
}
