/* q5_k: 256 weights of 5 bits in groups of 32: d scale q - dmin least.
 *
 * k_scales.h | 32 bytes: the fifth bits, of run r of 32 at bit r | 128 bytes as of q4_k
 */
#include "formats/k_scales.h"

INLINE uchar16 five_bits(bytes_t block, const int run, const int half_of_run)
{
  const uchar16 four = BYTES_16(block + 48 + run / 2 * 32 + half_of_run) >> (uchar)(run % 2 * 4) & (uchar)15;
  return four | (BYTES_16(block + 16 + half_of_run) >> (uchar)run & (uchar)1) << (uchar)4;
}

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 256 * 176;
  const int run = k / 32 % 8;
  const float2 s = k_scales(block, run);
  *low = s.x * FIELD(five_bits(block, run, 0), 0, 5) - s.y;
  *high = s.x * FIELD(five_bits(block, run, 16), 0, 5) - s.y;
}
