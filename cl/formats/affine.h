/* affine: scale * q + bias, a scale and a bias for GROUP_SIZE weights.
 *
 * Macros: QUANT_BITS; GROUP_SIZE, 32, 64 or 128; SCALE_TYPE, 0: float32, 1: float16, 2: bfloat16.
 */
#include "formats/packed_rows.h"

#if SCALE_TYPE == 0
#define SCALE_AT(p, i) ((__global const float *)(p))[i]
#elif SCALE_TYPE == 1
#define SCALE_AT(p, i) HALF_AT((__global const ushort *)(p) + (i))
#else
#define SCALE_AT(p, i) as_float((uint)((__global const ushort *)(p))[i] << 16)
#endif

INLINE float16 affine_values(const float16 q, const float scale, const float bias)
{
#if SCALE_TYPE != 1 /* the product may be inexact, or infinite, and is rounded by itself */
#pragma OPENCL FP_CONTRACT OFF
  const float16 scaled = q * scale;
  return scaled + bias;
#else
  return q * scale + bias;
#endif
}

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t scales = row + K / 8 * QUANT_BITS;
  const float scale = SCALE_AT(scales, k / GROUP_SIZE), bias = SCALE_AT(scales, ((uint)K + k) / GROUP_SIZE);
  uint16 of_low, of_high;
  codes32(row, k, &of_low, &of_high);
  *low = affine_values(NUMBERS(of_low), scale, bias);
  *high = affine_values(NUMBERS(of_high), scale, bias);
}

#define CODES_ZERO (QUANT_BITS == 8 ? 128 : 0)
/* Those of `count` groups. */
INLINE void code_scales(bytes_t row, const int k, const int K, const int count, float *scale, float *bias)
{
  bytes_t scales = row + K / 8 * QUANT_BITS;
  const int first = k / GROUP_SIZE, apart = K / GROUP_SIZE;
#if SCALE_TYPE == 1
  halves_at(scales + 2 * first, 2, count, scale);
  halves_at(scales + 2 * (first + apart), 2, count, bias);
#else
  for (int g = 0; g < count; ++g) scale[g] = SCALE_AT(scales, first + g), bias[g] = SCALE_AT(scales, first + apart + g);
#endif
  if (CODES_ZERO)
    for (int g = 0; g < count; ++g) bias[g] += CODES_ZERO * scale[g];
}

#if QUANT_BITS == 4
#define NIBBLE_VALUES(codes, scale, bias) affine_values(CONVERTED(float16, codes), scale, bias)
#elif QUANT_BITS == 8
#define CODES_GROUP GROUP_SIZE
#define CODES_BITS 8
#define CODES_EVEN_ODD 0
INLINE void codes64(bytes_t row, const int k, const int K, ushort16 *codes)
{
  codes[0] = LOADED(ushort, 16, row + k), codes[1] = LOADED(ushort, 16, row + k + 32);
}
#endif
