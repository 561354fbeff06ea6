/* ptx_wgmma_bare: the instructions of sm_90a that wgmma_bare.cl needs, but for those of ptx_wgmma_lists.h, as inline PTX.
 *
 * A line that begins with //@sm_90a is a comment until opencl/compiler.py rewrites the program for the target sm_90a,
 * which the compiler of OpenCL C does not offer. ptx_wgmma.h has the multiplication in every size.
 *
 * Macros: A_TYPE float16 or bfloat16.
 * Technique: wgmma as in NVIDIA's PTX manual.
 */
#include "include/types.h"
#include "nvidia/ptx.h"
#include "nvidia/ptx_wgmma_lists.h"

#define ptx_float16 "f16"
#define ptx_bfloat16 "bf16"
#define PTX_TYPE CAT(ptx_, A_TYPE)

/* The 32 sums of a work-item, as operands of an asm statement that reads and writes them. */
#define WGMMA_REG "+f"
#define SUMS(d) SUMS_64(WGMMA_REG, d)

/* Starts D (64 x 64) += A (64 x 16) B (16 x 64). a and b are descriptors. Predicate p is true: add to D. The numbers at
 * the end: 1, 1: A and B are not negated; 0, 0: both lie along K. */
INLINE void wgmma(float *d, const ulong a, const ulong b)
{
  asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.u32 p, 0, 0;\n\t"
               "//@sm_90a wgmma.mma_async.sync.aligned.m64n64k16.f32." PTX_TYPE "." PTX_TYPE
               " {" NAMES_64 "}, %32, %33, p, 1, 1, 0, 0;\n\t}"
               : SUMS(d) : "l"(a), "l"(b) : "memory");
}

/* Waits until all groups are done. The sums are operands, so the compiler moves no use of them above it. */
INLINE void wgmma_wait(float *d) { asm volatile("//@sm_90a wgmma.wait_group.sync.aligned 0;" : SUMS(d) :: "memory"); }
