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

#define CODES_GROUP 32
#define CODES_ZERO 0
#define NIBBLES_IN HALVES_OF_RUNS
#define NIBBLES_APART 20
#define NIBBLE_VALUES(codes, scale, offset) ((scale) * CONVERTED(float16, codes) + (offset))
INLINE int nibbles_at(const int k) { return (uint)k / 32 * 20 + 4; }
INLINE void code_scales(bytes_t row, const int k, const int K, const int count, float *scale, float *offset)
{
  halves_at(row + k / 32 * 20, 20, count, scale);
  halves_at(row + k / 32 * 20 + 2, 20, count, offset);
}
#include "formats/nibbles.h"
