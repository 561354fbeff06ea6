/* q2_k: 256 weights of 2 bits in groups of 16: d scale q - dmin least.
 *
 * 16 bytes: scale in the low half, least in the high one | 64 bytes, run r of 32 at bit 2 (r % 4) of bytes 32 (r / 4) ...
 * | float16 d | float16 dmin
 */
#include "formats/bytes.h"

INLINE float16 group_of_q2_k(bytes_t block, const int group, const uchar16 q, const int shift)
{
  const uchar scale = block[group];
  const float16 d = HALF_AT(block + 80) * (float)(scale & 15), m = HALF_AT(block + 82) * (float)(scale >> 4);
  return d * FIELD(q, shift, 2) - m;
}

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 256 * 84;
  const int run = k / 32 % 8;
  bytes_t q = block + 16 + run / 4 * 32;
  *low = group_of_q2_k(block, 2 * run, BYTES_16(q), run % 4 * 2);
  *high = group_of_q2_k(block, 2 * run + 1, BYTES_16(q + 16), run % 4 * 2);
}
