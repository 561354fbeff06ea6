/* q8_0: d q. float16 d | 32 signed bytes. */
#include "formats/bytes.h"

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + (uint)k / 32 * 34;
  const float d = HALF_AT(block);
  *low = d * CONVERTED(float16, as_char16(BYTES_16(block + 2)));
  *high = d * CONVERTED(float16, as_char16(BYTES_16(block + 18)));
}

#define CODES_GROUP 32
#define CODES_BITS 8
#define CODES_ZERO 128
#define CODES_EVEN_ODD 0
INLINE void codes64(bytes_t row, const int k, const int K, ushort16 *codes)
{
  bytes_t q = row + (uint)k / 32 * 34 + 2;
  codes[0] = LOADED(ushort, 16, q) ^ (ushort)0x8080, codes[1] = LOADED(ushort, 16, q + 34) ^ (ushort)0x8080;
}
INLINE void code_scales(bytes_t row, const int k, const int K, const int count, float *scale, float *offset)
{
  halves_at(row + (uint)k / 32 * 34, 34, count, scale);
}
