/* ptx_round: two floats as two 16-bit elements of a word, rounded to nearest even, as inline PTX (sm_80). */
#include "include/attributes.h"

INLINE uint packed_float16(const float low, const float high)
{
  uint word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
INLINE uint packed_bfloat16(const float low, const float high)
{
  uint word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
