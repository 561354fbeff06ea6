/* ptx_halves: arithmetic on pairs of 16-bit floats, and what work-groups need to add up sums in one launch, as inline PTX
 * (sm_80).
 *
 *   packed_float16(low, high) two floats as the halves of a word, rounded to nearest even; packed_bfloat16 the same
 *   fused_float16(a, b, c)    a b + c of both halves of a word, rounded once; fused_bfloat16 the same
 *   read_once(words, from)    four words of global memory that nobody reads again
 *   prefetch_line(from)       loads that memory into the cache of all compute units
 *   all_of_group(x)           a barrier of the work-group for local memory; whether x holds for all of its work-items
 *   device_fence()            orders this work-item's accesses to global memory for all work-groups
 */
#include "include/attributes.h"

#define OF_PAIRS(kind, name)                                                          \
  INLINE uint packed_##kind(const float low, const float high)                        \
  {                                                                                   \
    uint word;                                                                        \
    asm("cvt.rn." name ".f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));        \
    return word;                                                                      \
  }                                                                                   \
  INLINE uint fused_##kind(const uint a, const uint b, const uint c)                  \
  {                                                                                   \
    uint word;                                                                        \
    asm("fma.rn." name " %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(c));     \
    return word;                                                                      \
  }
OF_PAIRS(float16, "f16x2")
OF_PAIRS(bfloat16, "bf16x2")

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
