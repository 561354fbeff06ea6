/* exponents: whether the highest mode of weights.h serves many groups, by the exponents of their scales and biases.
 *
 * Macros: those of weights.h.
 */
#include "nvidia/weights.h"

#if TOP_MODE
/* Of many groups the least and the greatest exponents of scales in the low half, and of biases over scales in the high one, with signs;
 * and in the high half the least exponents of biases. */
typedef struct { uint least, most, least_bias; } range_t;
INLINE range_t no_range(void) { return (range_t){0x7fff7fffu, 0x80008000u, 0x7fff7fffu}; }
/* By a scale and, in the high half, its bias. */
INLINE void widen(range_t *range, const uint pair)
{
  const uint exponents = pair & CAT(exponent_, ELEMENT) * 0x10001u, both = exponents * 0xffff0001u; /* high half: less the low one */
  range->least = lesser_halves(range->least, both);
  range->most = greater_halves(range->most, both);
  range->least_bias = lesser_halves(range->least_bias, exponents);
}

/* Whether the highest mode serves all of them, as top_serves says of one. */
INLINE bool top_serves_range(const range_t *range)
{
  const int unit = CAT(unit_, ELEMENT), apart = CAT(exponents_apart_, ELEMENT) - 1;
  return (short)range->least >= unit && (short)range->most <= CAT(normal_, ELEMENT) * unit && range->least_bias >> 16 != 0 &&
         (int)range->least >> 16 >= (BITS - apart) * unit && (int)range->most >> 16 <= apart * unit;
}
#endif
