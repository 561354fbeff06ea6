/* q4_0: d (q - 8). float16 d | 16 bytes: weights 0 to 15 in the low halves, 16 to 31 in the high ones. */
#include "formats/bytes.h"

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 32 * 18;
  const float d = HALF_AT(block);
  const uchar16 q = BYTES_16(block + 2);
  *low = d * (FIELD(q, 0, 4) - 8.0f);
  *high = d * (FIELD(q, 4, 4) - 8.0f);
}

#define NIBBLES_GROUP 32
#define NIBBLES_EVEN_ODD 0
#define NIBBLE_VALUES(codes, scale, offset) ((scale) * (CONVERTED(float16, codes) - 8.0f))
INLINE int nibbles_at(const int k) { return (uint)k / 32 * 18; }
INLINE void nibbles32(bytes_t p, const int run, const int four, const int keep, int16 *low, int16 *high)
{
  const int16 bytes = CONVERTED(int16, BYTES_16(p + run * 18 + 2));
  *low = bytes & keep, *high = bytes >> four;
}
INLINE void nibble_scales(bytes_t row, const int k, const int K, const int count, float *scale, float *offset)
{
  halves_at(row + k / 32 * 18, 18, count, scale);
}

#define CODES_GROUP 32
#define CODES_BITS 4
#define CODES_ZERO 8
#define CODES_EVEN_ODD 0
#define code_scales nibble_scales
INLINE void codes64(bytes_t row, const int k, const int K, ushort16 *codes)
{
  bytes_t q = row + k / 32 * 18 + 2;
  split_nibbles(both_16(q, q + 18), 1, codes);
}
