/* mxfp4 as GGUF has it: a byte e | 16 bytes of E2M1: weights 0 to 15 in the low halves, 16 to 31 in the high ones.
 * Values are 2^(e - 128) times twice a number of E2M1. GGUF has one zero.
 */
#include "formats/floats.h"

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 32 * 17;
  const uint e = block[0];
  const float d = as_float(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
  const uint16 q = CONVERTED(uint16, LOADED(uchar, 16, block + 1));
  *low = d * (doubled_e2m1(q & 15u) + 0.0f);
  *high = d * (doubled_e2m1(q >> 4) + 0.0f);
}
