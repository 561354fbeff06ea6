/* ptx_wgmma_bare: what wgmma_bare.cl needs of sm_90a, one function for each instruction, as inline PTX.
 *
 * A line that begins with //@sm_90a is a comment until pyclmm/opencl/ptx.py rewrites the program for the target sm_90a,
 * which the compiler of OpenCL C does not offer. ptx_wgmma.h has the instruction in every size.
 *
 * Macros: A_TYPE float16 or bfloat16.
 * Technique: wgmma as in NVIDIA's PTX manual.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "nvidia/ptx_copy.h"

#define ptx_float16 "f16"
#define ptx_bfloat16 "bf16"
#define PTX_TYPE CAT(ptx_, A_TYPE)

/* The 32 sums of a work-item, as operands of an asm statement that reads and writes them. */
#define SUMS_8(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS(d) SUMS_8(d, 0), SUMS_8(d, 8), SUMS_8(d, 16), SUMS_8(d, 24)

/* The matrix units read local memory by another way than work-items store to it. This work-item's stores before the
 * fence are visible on that way after it. */
INLINE void stores_fence(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Needed before wgmma where other instructions have written its registers. */
INLINE void wgmma_fence(void) { asm volatile("//@sm_90a wgmma.fence.sync.aligned;" ::: "memory"); }

/* Issues D (64 x 64) += A (64 x 16) B (16 x 64). a and b describe tiles. Predicate p: true, add to D. The numbers at the
 * end: A and B are not negated, and both are stored along K. */
INLINE void wgmma(float *d, const ulong a, const ulong b)
{
  asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.u32 p, 0, 0;\n\t"
               "//@sm_90a wgmma.mma_async.sync.aligned.m64n64k16.f32." PTX_TYPE "." PTX_TYPE
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n\t}"
               : SUMS(d) : "l"(a), "l"(b) : "memory");
}

/* Closes a group: the multiplications issued since the last one. */
INLINE void wgmma_commit(void) { asm volatile("//@sm_90a wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Waits until all groups are done. The sums are operands, so the compiler moves no use of them above it. */
INLINE void wgmma_wait(float *d) { asm volatile("//@sm_90a wgmma.wait_group.sync.aligned 0;" : SUMS(d) :: "memory"); }
