/* rounded: the bits of a double by integer operations, and what the epilogue takes of them.
 *
 * Technique: the textbook algorithm, as in Muller et al., "Handbook of Floating-Point Arithmetic", chapter 8.
 */
#include "include/attributes.h"
#include "include/types.h"

#define AS_REAL(bits) as_double(bits)

/* whole 2^exponent with this sign, rounded to the nearest double, ties to even; zero is +0. Bit 0 of `whole` may stand
 * for further bits that are not all zero, if `whole` has 64 bits. */
INLINE ulong rounded_double(const bool negative, const ulong whole, const int exponent)
{
  if (!whole) return 0;
  const int top = 63 - (int)clz(whole);
  const int unit = max(exponent + top - 52, -1074); /* exponent of the result's last bit */
  const int by = unit - exponent;
  ulong kept = by > 63 ? 0 : by >= 0 ? whole >> by : whole << -by;
  if (by > 0 && by <= 63) {
    const ulong middle = (ulong)1 << (by - 1), rest = whole & (middle | (middle - 1));
    kept += rest > middle || (rest == middle && (kept & 1));
  }
  else if (by == 64) kept = whole > (ulong)1 << 63;
  const ulong bits = kept < (ulong)1 << 52 ? kept : ((ulong)(unit + 1074) << 52) + kept;
  const ulong infinity = (ulong)0x7ff << 52;
  return (negative ? (ulong)1 << 63 : 0) | (exponent + top > 1023 ? infinity : min(bits, infinity));
}
