/* ptx_wgmma_bare: what wgmma_bare.cl needs of sm_90a, one function for each instruction, as inline PTX.
 *
 * A line that begins with //@sm_90a is a comment until opencl/compiler.py rewrites the program for the target sm_90a,
 * which the compiler of OpenCL C does not offer. ptx_wgmma.h has the multiplication in every size.
 *
 * Macros: A_TYPE float16 or bfloat16.
 * Technique: wgmma as in NVIDIA's PTX manual.
 */
#include "include/types.h"
#include "nvidia/ptx_copy.h"

#define ptx_float16 "f16"
#define ptx_bfloat16 "bf16"
#define PTX_TYPE CAT(ptx_, A_TYPE)

/* The 32 sums of a work-item, as operands of an asm statement that reads and writes them. */
#define SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(d, i) SUMS_4(d, i), SUMS_4(d, i + 4), SUMS_4(d, i + 8), SUMS_4(d, i + 12)
#define SUMS(d) SUMS_16(d, 0), SUMS_16(d, 16)

/* Matrix units read local memory by another way (PTX: a proxy) than work-items store to it. After this fence they see
 * what this work-item has stored before it. */
INLINE void stores_fence(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Needed before wgmma where other instructions have written its registers. */
INLINE void wgmma_fence(void) { asm volatile("//@sm_90a wgmma.fence.sync.aligned;" ::: "memory"); }

/* Starts D (64 x 64) += A (64 x 16) B (16 x 64). a and b are descriptors. Predicate p is true: add to D. The numbers at
 * the end: 1, 1: A and B are not negated; 0, 0: both lie along K. */
INLINE void wgmma(float *d, const ulong a, const ulong b)
{
  asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.u32 p, 0, 0;\n\t"
               "//@sm_90a wgmma.mma_async.sync.aligned.m64n64k16.f32." PTX_TYPE "." PTX_TYPE
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n\t}"
               : SUMS(d) : "l"(a), "l"(b) : "memory");
}

/* Closes a group: the multiplications started since the last one. */
INLINE void wgmma_commit(void) { asm volatile("//@sm_90a wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Waits until all groups are done. The sums are operands, so the compiler moves no use of them above it. */
INLINE void wgmma_wait(float *d) { asm volatile("//@sm_90a wgmma.wait_group.sync.aligned 0;" : SUMS(d) :: "memory"); }
