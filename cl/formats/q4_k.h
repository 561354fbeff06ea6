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

#define CODES_GROUP 32
#define CODES_ZERO 0
#define NIBBLES_IN PAIRS_OF_RUNS
#define NIBBLES_APART 16
#define NIBBLE_VALUES(codes, scale, offset) ((scale) * CONVERTED(float16, codes) + (offset))
INLINE int nibbles_at(const int k) { return (uint)k / 256 * 144 + (uint)k / 64 % 4 * 32 + 16; }
INLINE void code_scales(bytes_t row, const int k, const int K, const int count, float *scale, float *offset)
{
  typedef float8 floats ALIGNED(4);
  bytes_t block = row + (uint)k / 256 * 144;
  for (int g = 0; g < count; g += 8, block += 144) {
    const uint4 w = as_uint4(LOADED(ushort, 8, block));
    const uint4 ends = w.yyzz >> 2u & (uint4)(0, 0x30303030u, 0, 0x30303030u);
    const uint4 low = w.ywzw >> (uint4)(0, 0, 0, 4) & (uint4)(0x3f3f3f3fu, 0x0f0f0f0fu, 0x3f3f3f3fu, 0x0f0f0f0fu);
    const uint4 all = low | ends;
    /* by eights: Oclgrind takes halves of a float16 that was converted from bytes for uninitialized */
    const float8 scales = CONVERTED(float8, as_uchar8(all.xy)), least = CONVERTED(float8, as_uchar8(all.zw));
    *(floats *)(scale + g) = HALF_AT(block) * scales, *(floats *)(offset + g) = -HALF_AT(block + 2) * least;
  }
}
#include "formats/nibbles.h"
