/* q4_k: 256 weights of 4 bits in groups of 32: d scale q - dmin least.
 *
 * k_scales.h | 128 bytes: of each 32 the low halves are one run of 32, the high halves the next.
 */
#include "formats/k_scales.h"

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 256 * 144;
  const int run = k / 32 % 8, shift = run % 2 * 4;
  const float2 s = k_scales(block, run);
  bytes_t q = block + 16 + run / 2 * 32;
  *low = s.x * FIELD(BYTES_16(q), shift, 4) - s.y;
  *high = s.x * FIELD(BYTES_16(q + 16), shift, 4) - s.y;
}

#define NIBBLES_GROUP 32
#define NIBBLES_EVEN_ODD 0
#define NIBBLE_VALUES(codes, scale, offset) ((scale) * CONVERTED(float16, codes) + (offset))
INLINE void nibbles32(bytes_t row, const int k, int16 *low, int16 *high)
{
  bytes_t q = row + k / 256 * 144 + 16 + k / 64 % 4 * 32;
  const int shift = k / 32 % 2 * 4;
  *low = CONVERTED(int16, BYTES_16(q)) >> shift, *high = CONVERTED(int16, BYTES_16(q + 16)) >> shift;
}
INLINE void nibble_scales(bytes_t row, const int k, const int K, const int count, float *scale, float *offset)
{
  typedef float8 floats ALIGNED(4);
  for (int g = 0; g < count; g += 8) {
    bytes_t block = row + (k / 32 + g) / 8 * 144;
    const uint2 w = as_uint2(LOADED(ushort, 4, block + 4));
    const uint last = as_uint(LOADED(ushort, 2, block + 12));
    const uint2 of_first = w & 0x3f3f3f3fu, of_last = ((uint2)(last, last >> 4) & 0x0f0f0f0fu) | (w >> 2 & 0x30303030u);
    *(floats *)(scale + g) = HALF_AT(block) * convert_float8(as_uchar8((uint2)(of_first.x, of_last.x)));
    *(floats *)(offset + g) = -HALF_AT(block + 2) * convert_float8(as_uchar8((uint2)(of_first.y, of_last.y)));
  }
}

#define CODES_GROUP 32
#define CODES_SIGNED 0
#define CODES_EVEN_ODD 0
#define code_scales nibble_scales
INLINE void codes64(bytes_t row, const int k, const int K, ushort16 *codes)
{
  split_nibbles(LOADED(ushort, 16, row + k / 256 * 144 + 16 + k / 64 % 4 * 32), 0, codes);
}
