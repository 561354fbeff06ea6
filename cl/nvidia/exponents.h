/* exponents: whether the highest mode of weights.h serves many groups, by the exponents of their scales and biases.
 *
 * Macros: those of weights.h.
 */
#include "nvidia/weights.h"

#if TOP_MODE
/* Of many groups the least and the greatest exponents, with signs: in the low half of scales, in the high one of biases over
 * scales. */
typedef struct { uint least, most; } range_t;
INLINE range_t no_range(void) { return (range_t){0x7fff7fffu, 0x80008000u}; }
/* By a scale and, in the high half, its bias. A bias of 0 counts as the least exponent. */
INLINE void widen(range_t *range, const uint pair)
{
  const uint exponents = pair & CAT(exponent_, ELEMENT) * 0x10001u;
  const uint both = exponents * 0xffff0001u; /* the high half less the low one */
  range->least = lesser_halves(range->least, both);
  range->most = greater_halves(range->most, both);
}

/* Whether the highest mode serves all of them, as top_serves says of one. */
INLINE bool top_serves_range(const range_t *range)
{
  const int unit = CAT(unit_, ELEMENT), apart = CAT(exponents_apart_, ELEMENT) - 1;
  return (short)range->least >= unit && (short)range->most <= CAT(normal_, ELEMENT) * unit &&
         (int)range->least >> 16 >= (BITS - apart) * unit && (int)range->most >> 16 <= apart * unit;
}
#endif
