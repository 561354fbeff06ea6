/* ptx_wgmma_held: wgmma (sm_90a) with its left operand in registers, as inline PTX. A quartet of sub-groups, 128 work-items,
 * multiplies: D (64 x BM, in registers) += A (64 x 16, in registers) B (16 x BM, in local memory).
 *
 * Work-item 32 s + 4 g + t of the quartet holds, as with ptx_mma.h, of rows 16 s + g and 16 s + g + 8
 *   a[h + 2 q] = A(16 s + g + 8 h, k = 8 q + 2 t and + 1),   d[4 j + 2 h + c] = D(16 s + g + 8 h, 8 j + 2 t + c)
 * B is a box of ptx_map.h: rows of 128 bytes of k, one for each column.
 *
 * Macros: BM, columns of B: 8, 16, 32, 64, 128; ELEMENT float16 or bfloat16.
 * Technique: the fragment layouts and matrix descriptors of NVIDIA's PTX manual.
 */
#include "nvidia/operands.h"
#include "nvidia/ptx.h"
#include "nvidia/ptx_wgmma_lists.h"

/* The low half of a matrix descriptor, which counts in 16 bytes. Bits 0 to 13: the address. Two more: the next 16 of k. The high half
 * is HELD_HIGH. Bits 32 to 45: to the next eight columns; 62: a swizzle over 128 bytes. */
#define HELD_HIGH (64UL << 32 | 1UL << 62)
INLINE uint held_tile(const uint address) { return (address & 0x3ffff) >> 4; }

#define WGMMA_REG "+f"
#define HELD_SUMS(v) CAT(SUMS_, BM)(WGMMA_REG, v)
#define held_float16 "f16.f16"
#define held_bfloat16 "bf16.bf16"

/* Starts d += A B, b being held_tile's. `a` must not change until it is done. */
INLINE void wgmma_held(float *d, const uint *a, const uint b)
{
  asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.u32 p, 0, 0;\n\t"
               "//@sm_90a wgmma.mma_async.sync.aligned.m64n" TEXT(BM) "k16.f32." CAT(held_, ELEMENT) " {" CAT(NAMES_, BM) "}, "
               CAT(BEHIND_, BM)(LEFT_AND_TILE) ", p, 1, 1, 0;\n\t}"
               : HELD_SUMS(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b | HELD_HIGH) : "memory");
}

/* Waits until all groups are done. The sums are operands, so the compiler moves no use of them above it. */
#define wgmma_wait_held(d) asm volatile("//@sm_90a wgmma.wait_group.sync.aligned 0;" : HELD_SUMS(d) : : "memory")
