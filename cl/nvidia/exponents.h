/* exponents: whether the highest mode of weights.h serves many groups, by the exponents of their scales and biases.
 *
 * Macros: those of weights.h.
 */
#include "nvidia/weights.h"

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
#endif
