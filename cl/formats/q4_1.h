/* q4_1: d q + m. float16 d | float16 m | 16 bytes: weights 0 to 15 in the low halves, 16 to 31 in the high ones. */
#include "formats/bytes.h"

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 32 * 20;
  const float16 d = HALF_AT(block), m = HALF_AT(block + 2);
  const uchar16 q = BYTES_16(block + 4);
  *low = d * FIELD(q, 0, 4) + m;
  *high = d * FIELD(q, 4, 4) + m;
}

#define NIBBLES_GROUP 32
#define NIBBLES_EVEN_ODD 0
#define NIBBLE_VALUES(codes, scale, offset) ((scale) * CONVERTED(float16, codes) + (offset))
INLINE int nibbles_at(const int k) { return (uint)k / 32 * 20; }
INLINE void nibbles32(bytes_t p, const int run, const int four, const int keep, int16 *low, int16 *high)
{
  const int16 bytes = CONVERTED(int16, BYTES_16(p + run * 20 + 4));
  *low = bytes & keep, *high = bytes >> four;
}
INLINE void nibble_scales(bytes_t row, const int k, const int K, const int count, float *scale, float *offset)
{
  halves_at(row + k / 32 * 20, 20, count, scale);
  halves_at(row + k / 32 * 20 + 2, 20, count, offset);
}

#define CODES_GROUP 32
#define CODES_BITS 4
#define CODES_ZERO 0
#define CODES_EVEN_ODD 0
#define code_scales nibble_scales
INLINE void codes64(bytes_t row, const int k, const int K, ushort16 *codes)
{
  bytes_t q = row + k / 32 * 20 + 4;
  split_nibbles(both_16(q, q + 20), 1, codes);
}
