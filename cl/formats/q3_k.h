/* q3_k: 256 weights of 3 bits in groups of 16: d (scale - 32) (q - 4).
 *
 * 32 bytes: the third bits, of run r of 32 at bit r | 64 bytes: two bits, run r at bit 2 (r % 4) of bytes 32 (r / 4) ...
 * | 12 bytes: scales of 6 bits, the low four of group g in byte g % 8, the high two in byte 8 + g % 4 | float16 d
 */
#include "formats/bytes.h"

INLINE float16 group_of_q3_k(bytes_t block, const int group, const uchar16 two, const uchar16 third)
{
  bytes_t scales = block + 96;
  const int scale = (scales[group % 8] >> group / 8 * 4 & 15) | (scales[8 + group % 4] >> group / 4 * 2 & 3) << 4;
  const int run = group / 2;
  const uchar16 q = (two >> (uchar)(run % 4 * 2) & (uchar)3) | (third >> (uchar)run & (uchar)1) << (uchar)2;
  return HALF_AT(block + 108) * (float)(scale - 32) * (FIELD(q, 0, 3) - 4.0f);
}

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 256 * 110;
  const int run = k / 32 % 8;
  bytes_t two = block + 32 + run / 4 * 32;
  *low = group_of_q3_k(block, 2 * run, BYTES_16(two), BYTES_16(block));
  *high = group_of_q3_k(block, 2 * run + 1, BYTES_16(two + 16), BYTES_16(block + 16));
}
