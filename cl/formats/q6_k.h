/* q6_k: 256 weights of 6 bits in groups of 16: d scale (q - 32).
 *
 * 128 bytes: the low four bits, of 64 the low halves are two runs of 32, the high halves the next two | 64 bytes: the high
 * two, run r at bit 2 (r % 4) of bytes 32 (r / 4) ... | 16 signed bytes: scales | float16 d
 */
#include "formats/bytes.h"

INLINE float16 group_of_q6_k(bytes_t block, const int run, const int half_of_run)
{
  bytes_t low = block + run / 4 * 64 + run % 2 * 32 + half_of_run, high = block + 128 + run / 4 * 32 + half_of_run;
  const uchar16 four = BYTES_16(low) >> (uchar)(run % 4 / 2 * 4) & (uchar)15;
  const uchar16 two = BYTES_16(high) >> (uchar)(run % 4 * 2) & (uchar)3;
  const float scale = (float)(char)block[192 + 2 * run + half_of_run / 16];
  return HALF_AT(block + 208) * scale * (FIELD(four | two << (uchar)4, 0, 6) - 32.0f);
}

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 256 * 210;
  *low = group_of_q6_k(block, k / 32 % 8, 0);
  *high = group_of_q6_k(block, k / 32 % 8, 16);
}
