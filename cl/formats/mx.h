/* mxfp4, mxfp8, nvfp4: E2M1 of 4 bits or E4M3 of 8 times a scale of a byte: a power of two, E8M0, for 32 weights, or a
 * positive E4M3 for 16.
 *
 * Macros: QUANT_BITS, 4 or 8; GROUP_SIZE, 32 or 16.
 */
#include "formats/floats.h"
#include "formats/packed_rows.h"

#if QUANT_BITS == 4
#define SMALL_FLOATS(q) (0.5f * doubled_e2m1(q))
#else
#define SMALL_FLOATS(q) numbers_e4m3(q)
#endif
#if GROUP_SIZE == 32
#define SCALE_OF(code) power_e8m0(code)
#else
#define SCALE_OF(code) numbers_e4m3((uint16)(code)).s0
#endif

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t scales = row + K / 8 * QUANT_BITS + k / GROUP_SIZE;
  uint16 of_low, of_high;
  codes32(row, k, &of_low, &of_high);
  *low = SMALL_FLOATS(of_low) * SCALE_OF((uint)scales[0]);
  *high = SMALL_FLOATS(of_high) * SCALE_OF((uint)scales[16 / GROUP_SIZE]);
}

#if QUANT_BITS == 4 && GROUP_SIZE == 32
#define NIBBLE_VALUES(codes, scale, offset) (SMALL_FLOATS(CONVERTED(uint16, codes)) * (scale))
INLINE void code_scales(bytes_t row, const int k, const int K, const int count, float *scale, float *offset)
{
  for (int g = 0; g < count; ++g) scale[g] = SCALE_OF((uint)row[K / 2 + k / 32 + g]), offset[g] = 0;
}
#endif
