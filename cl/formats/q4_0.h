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

#define CODES_GROUP 32
#define CODES_ZERO 8
#define NIBBLES_IN HALVES_OF_RUNS
#define NIBBLES_APART 18
#define NIBBLE_VALUES(codes, scale, offset) ((scale) * (CONVERTED(float16, codes) - 8.0f))
INLINE int nibbles_at(const int k) { return (uint)k / 32 * 18 + 2; }
INLINE void code_scales(bytes_t row, const int k, const int K, const int count, float *scale, float *offset)
{
  halves_at(row + k / 32 * 18, 18, count, scale);
}
#include "formats/nibbles.h"
