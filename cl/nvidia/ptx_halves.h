/* ptx_halves: arithmetic on pairs of 16-bit floats, and what work-groups need to add up sums in one launch, as inline PTX
 * (sm_80).
 *
 *   fused_float16(a, b, c)    a b + c of both halves of a word, rounded once; fused_bfloat16 the same
 *   read_once(words, from)    four words of global memory that nobody reads again
 *   prefetch_line(from)       loads that memory into the cache of all compute units
 *   all_of_group(x)           a barrier of the work-group for local memory; whether x holds for all of its work-items
 *   device_fence()            orders this work-item's accesses to global memory for all work-groups
 */
#include "include/attributes.h"

#define FUSED_PAIR(kind)                                                              \
  INLINE uint fused_##kind(const uint a, const uint b, const uint c)                  \
  {                                                                                   \
    uint word;                                                                        \
    asm(PTX_FMA_##kind " %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(c));     \
    return word;                                                                      \
  }
#define PTX_FMA_float16 "fma.rn.f16x2"
#define PTX_FMA_bfloat16 "fma.rn.bf16x2"
FUSED_PAIR(float16)
FUSED_PAIR(bfloat16)

INLINE void read_once(uint *words, __global const uchar *from)
{
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "l"(from));
}
INLINE void prefetch_line(__global const uchar *from) { asm volatile("prefetch.global.L2 [%0];" :: "l"(from)); }
INLINE bool all_of_group(const bool x)
{
  uint all;
  asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.and.pred q, 0, p; selp.u32 %0, 1, 0, q; }"
               : "=r"(all) : "r"((uint)x) : "memory");
  return all;
}
INLINE void device_fence(void) { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
