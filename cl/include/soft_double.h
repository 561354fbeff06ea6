/* soft_double: float64 by integer operations, for devices without cl_khr_fp64. A number is its bits, a ulong.
 *
 *   x y + z = p 2^e + q 2^f      both as integers of 128 bits with bit 124 or 125 on top, at one exponent
 *
 * Terms are added and the sum is rounded as in soft_fma.h.
 * Macros: SOFT_FLOAT64. Without it there is rounded_double alone.
 * Technique: the textbook algorithm, as in Muller et al., "Handbook of Floating-Point Arithmetic", chapters 8 and 10.
 */
#include "include/attributes.h"

#define SOFT_SIGN ((ulong)1 << 63)
#define SOFT_INFINITY ((ulong)0x7ff << 52)
#define SOFT_NAN ((ulong)0xfff << 51)
#define SOFT_ONE ((ulong)0x3ff << 52)

/* whole 2^exponent with this sign, rounded to the nearest double, ties to even; 0 is +0. top: number of its highest bit.
 * Bit 0 of `whole` may stand for further bits that are not all zero, if top is 63. */
INLINE ulong rounded_from(const bool negative, const ulong whole, const int exponent, const int top)
{
  const int unit = max(exponent + top - 52, -1074); /* exponent of the result's last bit */
  const int by = unit - exponent;
  ulong kept = by > 63 ? 0 : by >= 0 ? whole >> by : whole << -by;
  if (by > 0 && by <= 63) {
    const ulong middle = (ulong)1 << (by - 1), rest = whole & (middle | (middle - 1));
    kept += rest > middle || (rest == middle && (kept & 1));
  }
  else if (by == 64) kept = whole > (ulong)1 << 63;
  const ulong bits = kept < (ulong)1 << 52 ? kept : ((ulong)(unit + 1074) << 52) + kept;
  return (negative ? SOFT_SIGN : 0) | (exponent + top > 1023 ? SOFT_INFINITY : min(bits, SOFT_INFINITY));
}

/* The same of a number with bit 63 on top. Most of them are normal doubles, which take fewer steps. */
INLINE ulong rounded_long(const bool negative, const ulong whole, const int exponent)
{
  const int field = exponent + 63 + 1023;
  if (field < 1 || field > 0x7fe) return rounded_from(negative, whole, exponent, 63);
  const uint rest = (uint)whole & 0x7ff, odd = (uint)(whole >> 11) & 1;
  return (negative ? SOFT_SIGN : 0) + ((ulong)(field - 1) << 52) + (whole >> 11) + (rest + odd > 0x400);
}

INLINE ulong rounded_double(const bool negative, const ulong whole, const int exponent)
{
  return whole ? rounded_from(negative, whole, exponent, 63 - (int)clz(whole)) : 0;
}

#if SOFT_FLOAT64
/* high 2^64 + low */
typedef struct { ulong high, low; } wide_t;

/* x is less than 0, and not NaN. */
INLINE bool soft_double_negative(const ulong x) { return x > SOFT_SIGN && x <= (SOFT_SIGN | SOFT_INFINITY); }

/* A finite magnitude other than zero as bit 52 on top, times 2^(*exponent). */
INLINE ulong soft_double_whole(const ulong bits, int *exponent)
{
  const int field = (int)(bits >> 52);
  const ulong whole = (bits & (((ulong)1 << 52) - 1)) | (field ? (ulong)1 << 52 : 0);
  const int up = (int)clz(whole) - 11;
  *exponent = (field ? field : 1) - 1075 - up;
  return whole << up;
}

/* x / 2^by, with the last bit set if bits are lost. */
INLINE void soft_double_shift(wide_t *x, const int by)
{
  ulong lost;
  if (by <= 0) return;
  if (by > 127) {
    lost = x->high | x->low;
    x->high = x->low = 0;
  } else if (by > 63) {
    lost = x->low | (by > 64 ? x->high << (128 - by) : 0);
    x->low = x->high >> (by - 64);
    x->high = 0;
  } else {
    lost = x->low << (64 - by);
    x->low = x->low >> by | x->high << (64 - by);
    x->high >>= by;
  }
  x->low |= lost != 0;
}

/* x y + z, rounded once. */
INLINE ulong soft_double_fma(const ulong x, const ulong y, const ulong z)
{
  const ulong sign = (x ^ y) & SOFT_SIGN, inf = SOFT_INFINITY;
  const ulong a = x & ~SOFT_SIGN, b = y & ~SOFT_SIGN, c = z & ~SOFT_SIGN;
  if (a > inf || b > inf || c > inf) return SOFT_NAN;
  if (a == inf || b == inf) return !a || !b || (c == inf && (z & SOFT_SIGN) != sign) ? SOFT_NAN : sign | inf;
  if (c == inf) return z;
  if (!a || !b) return c ? z : z & sign;
  int exponent_a, exponent_b, exponent_c = 0;
  const ulong u = soft_double_whole(a, &exponent_a) << 10, v = soft_double_whole(b, &exponent_b) << 10;
  wide_t product = {mul_hi(u, v), u * v}, other = {0, 0};
  int exponent = exponent_a + exponent_b - 20;
  bool minus = sign != 0;
  if (c) {
    other.high = soft_double_whole(c, &exponent_c) << 8;
    exponent_c -= 72;
    soft_double_shift(&product, exponent_c - exponent);
    soft_double_shift(&other, exponent - exponent_c);
    exponent = max(exponent, exponent_c);
    if ((z & SOFT_SIGN) == sign) {
      product.low += other.low;
      product.high += other.high + (product.low < other.low);
    } else {
      const bool borrow = product.low < other.low;
      product.low -= other.low;
      product.high -= other.high + borrow;
      if (product.high >> 63) {
        minus = !minus;
        product.low = -product.low;
        product.high = ~product.high + !product.low;
      }
    }
  }
  if (!product.high) return rounded_double(minus, product.low, exponent);
  const int up = (int)clz(product.high); /* not 0 */
  const ulong top = product.high << up | product.low >> (64 - up);
  return rounded_long(minus, top | ((product.low << up) != 0), exponent + 64 - up);
}
#endif
