/* q5_0: d (q - 16). float16 d | 4 bytes: the fifth bit of each weight | 16 bytes as of q4_0. */
#include "formats/bytes.h"

INLINE uchar16 fifth_bits(const uint bits)
{
  const uint16 places = (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return CONVERTED(uchar16, ((uint16)(bits) >> places & 1u) << 4);
}

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 32 * 22;
  const float d = HALF_AT(block);
  const uint fifth = as_uint(LOADED(ushort, 2, block + 2));
  const uchar16 q = BYTES_16(block + 6);
  *low = d * (FIELD((q & (uchar)15) | fifth_bits(fifth), 0, 5) - 16.0f);
  *high = d * (FIELD(q >> (uchar)4 | fifth_bits(fifth >> 16), 0, 5) - 16.0f);
}
