/* scales: scales and biases of a range of K for wgmma_quantized.cl, in local memory behind the weights (runs.h).
 *
 * They are copied before the first step: later they would come as four bytes of each of 32 lines. Then all work-items ask once
 * whether the highest mode of weights.h serves all of them.
 *
 * Macros: those of runs.h.
 */
#include "nvidia/runs.h"

/* Scales of a column, then its biases; an even number, so that both begin on words */
#define GROUPS ((STEPS * STEP / GROUP_SIZE + 1) / 2 * 2)
#define COLUMN_BYTES (2 * GROUPS * BYTES_OF(SCALE_ELEMENT) + 4)
#define SCALES_BYTES ((BN * COLUMN_BYTES + 15) / 16 * 16)
#define SCALES_AT (RUNS_AT + STAGES * RUNS_BYTES)

/* The scales and biases of a range of K, from k0 on: element e of column j. */
INLINE __local scale_bits *scale_at(__local uchar *memory, const int j, const int e)
{
  return (__local scale_bits *)(memory + SCALES_AT + j * COLUMN_BYTES) + e;
}

/* Starts to copy them, words of four bytes: of a column first those of the scales, then those of the biases. */
INLINE void copy_scales(
    const uint slots, __global const uchar *b, const long ldb, const int j0, const int N, const int k0, const int words, const int K)
{
  const int first = get_local_id(0) / 32;
  b += (long)(K / 8) * BITS + k0 / GROUP_SIZE * BYTES_OF(SCALE_ELEMENT);
  for (int w = OWN_LANE; w < 2 * words; w += 32) {
    const int bias = w >= words, word = 4 * (bias ? w - words : w);
    __global const uchar *from = b + bias * (K / GROUP_SIZE * BYTES_OF(SCALE_ELEMENT)) + word;
    const uint to = slots + SCALES_AT + first * COLUMN_BYTES + bias * (GROUPS * BYTES_OF(SCALE_ELEMENT)) + word;
    UNROLL for (int j = 0; j < BN; j += ITEMS / 32)
      copy_async(to + j * COLUMN_BYTES, from + min(j0 + first + j, N - 1) * ldb, 4, 4, BN % (ITEMS / 32) == 0 || first + j < BN);
  }
  copies_commit();
}

#if TOP_MODE
/* Of many groups, two in each word: the least and the greatest exponents, and those of biases over scales. */
typedef struct { uint least_scale, most_scale, least_bias, least_ratio, most_ratio; } range_t;
INLINE range_t no_range(void) { return (range_t){~0u, 0, ~0u, ~0u, 0}; }
INLINE void widen(range_t *range, const uint scales, const uint biases)
{
  const uint exponents = CAT(exponent_, ELEMENT) * 0x10001u, scale = scales & exponents, bias = biases & exponents;
  const uint ratio = bias + (scale ^ exponents); /* bias - scale + the greatest exponent: halves do not carry */
  range->least_scale = lesser_halves(range->least_scale, scale);
  range->most_scale = greater_halves(range->most_scale, scale);
  range->least_bias = lesser_halves(range->least_bias, bias);
  range->least_ratio = lesser_halves(range->least_ratio, ratio);
  range->most_ratio = greater_halves(range->most_ratio, ratio);
}
INLINE bool all_halves_within(const uint halves, const uint low, const uint high)
{
  return (halves & 0xffff) >= low && (halves & 0xffff) <= high && halves >> 16 >= low && halves >> 16 <= high;
}

/* Whether the highest mode serves all of them, as top_serves says of one. */
INLINE bool top_serves_range(const range_t *range)
{
  const uint unit = CAT(unit_, ELEMENT), apart = CAT(exponents_apart_, ELEMENT) - 1, even = CAT(exponent_, ELEMENT);
  return all_halves_within(range->least_scale, unit, 0xffff) && all_halves_within(range->most_scale, 0, CAT(normal_, ELEMENT) * unit) &&
         all_halves_within(range->least_bias, 1, 0xffff) && all_halves_within(range->least_ratio, even - (apart - BITS) * unit, 0xffff) &&
         all_halves_within(range->most_ratio, 0, even + apart * unit);
}

/* Whether the highest mode serves all groups of a work-item's share of the columns, of which `words` words are scales. */
INLINE bool all_top(__local uchar *memory, const int words)
{
  range_t range = no_range();
  for (int w = get_local_id(0) / BN; w < words; w += ITEMS / BN) {
    __local const uint *scales = (__local const uint *)scale_at(memory, get_local_id(0) % BN, 2 * w);
    widen(&range, scales[0], scales[GROUPS / 2]);
  }
  return top_serves_range(&range);
}
#endif
