/* soft_fma: IEEE's fused multiply-add of floats by integer arithmetic, for drivers whose fma() flushes subnormal numbers.
 *
 *   x y + z = (mx my) 2^ex + mz 2^ez     both terms as integers with bit 60 or 61 on top, at one exponent
 *
 * The lesser term is shifted right. If bits are lost, its last bit is set ("sticky"), which decides roundings as the lost
 * bits would. The sum is rounded once, to nearest even.
 * Technique: the textbook algorithm, as in Muller et al., "Handbook of Floating-Point Arithmetic", chapter 10.
 */
#include "include/attributes.h"

#if REPRODUCIBLE == 2 /* types.h */

/* A finite magnitude other than zero as bit 23 on top, times 2^(*exponent). */
INLINE ulong soft_significand(const uint bits, int *exponent)
{
  const uint field = bits >> 23 & 0xff;
  const uint whole = field ? (bits & 0x7fffff) | 0x800000 : bits & 0x7fffff;
  const int up = (int)clz(whole) - 8;
  *exponent = (field ? (int)field : 1) - 150 - up;
  return (ulong)whole << up;
}

/* x / 2^by, with the last bit set if bits are lost. */
INLINE ulong soft_shifted(const ulong x, const int by)
{
  if (by <= 0) return x;
  if (by > 63) return x != 0;
  return x >> by | ((x & (((ulong)1 << by) - 1)) != 0);
}

/* whole * 2^exponent with this sign bit, rounded to a float; whole is not 0. */
INLINE float soft_rounded(const ulong whole, const int exponent, const uint sign)
{
  const int top = 63 - (int)clz(whole);
  const int unit = max(exponent + top - 23, -149); /* the exponent of the result's last bit */
  const int by = unit - exponent;
  const ulong kept = by > 63 ? 0 : by >= 0 ? whole >> by : whole << -by;
  const ulong middle = by > 0 && by <= 63 ? (ulong)1 << (by - 1) : 0;
  const ulong rest = by > 0 && by <= 63 ? whole & (middle | (middle - 1)) : 0;
  const ulong even = kept + (middle && (rest > middle || (rest == middle && (kept & 1))));
  const ulong bits = even < 0x800000 ? even : ((ulong)(unit + 149) << 23) + even;
  return as_float(sign | (uint)min(bits, (ulong)0x7f800000));
}

INLINE float soft_fma(const float x, const float y, const float z)
{
  const uint a = as_uint(x), b = as_uint(y), c = as_uint(z), sign = (a ^ b) & 0x80000000u;
  const uint ma = a & 0x7fffffff, mb = b & 0x7fffffff, mc = c & 0x7fffffff, inf = 0x7f800000;
  if (ma > inf || mb > inf || mc > inf) return as_float(0x7fc00000);
  if (ma == inf || mb == inf) {
    const bool nan = ma == 0 || mb == 0 || (mc == inf && (c & 0x80000000u) != sign);
    return as_float(nan ? 0x7fc00000 : sign | inf);
  }
  if (mc == inf) return z;
  if (ma == 0 || mb == 0) return as_float(mc ? c : c & sign);
  int exponent_a, exponent_b, exponent_c;
  const ulong p = soft_significand(ma, &exponent_a) * soft_significand(mb, &exponent_b) << 13;
  int exponent = exponent_a + exponent_b - 13;
  if (mc == 0) return soft_rounded(p, exponent, sign);
  const ulong q = soft_significand(mc, &exponent_c) << 37;
  exponent_c -= 37;
  const long product = (long)soft_shifted(p, exponent_c - exponent);
  const long other = (long)soft_shifted(q, exponent - exponent_c);
  exponent = max(exponent, exponent_c);
  const long sum = (sign ? -product : product) + (c & 0x80000000u ? -other : other);
  if (sum == 0) return 0.0f;
  return soft_rounded((ulong)(sum < 0 ? -sum : sum), exponent, sum < 0 ? 0x80000000u : 0);
}
#endif
