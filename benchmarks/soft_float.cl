/* soft_float: float64 products by software floating point, for comparison (benchmarks/soft_float.py).
 *
 *   work-item (j, i) of a 2-D NDRange  ->  out(i, j) = sum over k of A(i, k) B(k, j), row-major
 *
 * A number is its bits, a ulong. The operations are those of Berkeley SoftFloat 3e, rounded to nearest even,
 * with subnormals, infinities and NaN but without flags: f64_mul, then f64_add, or f64_mulAdd if FUSED. As
 * there, each unpacks its operands, and rounds and packs its result; what a shift loses is jammed into the
 * last bit.
 *
 *   bit  63 62        52 51                    0        63 62 61                 10 9         0
 *       | s | exponent  | fraction              |      | 0 | 1 | fraction          | to round  |
 *        a packed number                                a significand that round_pack takes
 *
 * Macros: FUSED. Technique: J. R. Hauser, Berkeley SoftFloat 3e; written anew, no line is from there.
 */
#define INLINE static inline __attribute__((always_inline))
#define SIGN ((ulong)1 << 63)
#define INF ((ulong)0x7ff << 52)
#define HIDDEN ((ulong)1 << 52)
#define QUIET ((ulong)1 << 51)
#define INVALID ((ulong)0xfff << 51)

/* x / 2^by, by >= 1. */
INLINE ulong shift_jam(const ulong x, const int by)
{
  return by > 62 ? x != 0 : x >> by | (x << (64 - by) != 0);
}

/* The exponents of magnitudes: subnormals have that of the least normal number. */
INLINE int exponent_of(const ulong magnitude) { return max((int)(magnitude >> 52), 1); }
INLINE ulong significand_of(const ulong magnitude)
{
  return (magnitude & (HIDDEN - 1)) | (magnitude >> 52 ? HIDDEN : 0);
}

/* The significand of a finite number other than 0 with its highest bit at 52, and the exponent for that. */
INLINE ulong normalised(const ulong magnitude, int *exponent)
{
  *exponent = (int)(magnitude >> 52);
  if (*exponent) return (magnitude & (HIDDEN - 1)) | HIDDEN;
  const int up = (int)clz(magnitude) - 11;
  *exponent = 1 - up;
  return magnitude << up;
}

/* significand 2^(exponent - 1084). Its bit 62 adds 1 to the exponent as it is packed, and a carry of the
 * rounding 1 more, which may make infinity. */
INLINE ulong round_pack(const ulong sign, int exponent, ulong significand)
{
  if ((uint)exponent > 0x7fd) {
    if (exponent > 0) return sign | INF;
    significand = shift_jam(significand, -exponent);
    exponent = 0;
  }
  const ulong odd = significand >> 10 & 1;
  return sign + ((ulong)exponent << 52) + ((significand + 0x1ff + odd) >> 10);
}

INLINE ulong f64_mul(const ulong x, const ulong y)
{
  const ulong sign = (x ^ y) & SIGN, a = x & ~SIGN, b = y & ~SIGN;
  if (a >= INF || b >= INF) {
    if (a > INF || b > INF) return (a > INF ? x : y) | QUIET;
    return a && b ? sign | INF : INVALID;
  }
  if (!a || !b) return sign;
  int exponent_a, exponent_b;
  const ulong u = normalised(a, &exponent_a) << 10, v = normalised(b, &exponent_b) << 11;
  const ulong product = mul_hi(u, v) | (u * v != 0);
  const int up = product >> 62 ? 0 : 1;
  return round_pack(sign, exponent_a + exponent_b - 1023 - up, product << up);
}

/* Sum of two magnitudes, large >= small. */
INLINE ulong add_magnitudes(const ulong sign, const ulong large, const ulong small)
{
  if (large >= INF) return large > INF ? large | QUIET : sign | INF;
  if (large < HIDDEN) return sign | (large + small);
  const int exponent = exponent_of(large), by = exponent - exponent_of(small);
  const ulong other = significand_of(small) << 9;
  const ulong sum = (significand_of(large) << 9) + (by ? shift_jam(other, by) : other);
  const int up = sum >> 62 ? 0 : 1;
  return round_pack(sign, exponent - up, sum << up);
}

/* Their difference. It is exact if the exponents are equal. */
INLINE ulong subtract_magnitudes(const ulong sign, const ulong large, const ulong small)
{
  if (large >= INF) return large > INF ? large | QUIET : small == INF ? INVALID : sign | INF;
  const int exponent = exponent_of(large), by = exponent - exponent_of(small);
  if (!by) {
    const ulong rest = large - small;
    if (!rest) return 0;
    const int up = min((int)clz(rest) - 11, exponent - 1);
    return sign | (((ulong)(exponent - 1 - up) << 52) + (rest << up));
  }
  const ulong rest = (significand_of(large) << 10) - shift_jam(significand_of(small) << 10, by);
  const int up = (int)clz(rest) - 1;
  return round_pack(sign, exponent - 1 - up, rest << up);
}

INLINE ulong f64_add(const ulong x, const ulong y)
{
  const ulong a = x & ~SIGN, b = y & ~SIGN;
  const ulong sign = (a < b ? y : x) & SIGN, large = max(a, b), small = min(a, b);
  return (x ^ y) & SIGN ? subtract_magnitudes(sign, large, small) : add_magnitudes(sign, large, small);
}

/* x y + z, rounded once. The product has 128 bits, high 2^64 + low; bit 61 of high is on top. */
INLINE ulong f64_mul_add(const ulong x, const ulong y, const ulong z)
{
  ulong sign = (x ^ y) & SIGN;
  const ulong a = x & ~SIGN, b = y & ~SIGN, c = z & ~SIGN;
  const bool minus = (z & SIGN) != sign;
  if (a >= INF || b >= INF || c >= INF) {
    if (a > INF || b > INF || c > INF) return (a > INF ? x : b > INF ? y : z) | QUIET;
    if (a == INF || b == INF) return !a || !b || (c == INF && minus) ? INVALID : sign | INF;
    return z;
  }
  if (!a || !b) return c || !minus ? z : 0;
  int exponent_a, exponent_b, exponent_c;
  const ulong u = normalised(a, &exponent_a) << 10, v = normalised(b, &exponent_b) << 10;
  ulong high = mul_hi(u, v), low = u * v;
  int exponent = exponent_a + exponent_b - 1022;
  if (!(high >> 61)) {
    --exponent;
    high = high << 1 | low >> 63;
    low <<= 1;
  }
  if (!c) return round_pack(sign, exponent - 1, high << 1 | (low != 0));
  ulong term = normalised(c, &exponent_c) << 9, term_low = 0;
  const int by = exponent - exponent_c;
  if (by > 64) {
    term_low = shift_jam(term, by - 64);
    term = 0;
  } else if (by > 0) {
    term_low = term << (64 - by);
    term = by < 64 ? term >> by : 0;
  } else if (by == -1) { /* the difference may lose all of high: no bit is jammed */
    low = low >> 1 | high << 63;
    high >>= 1;
  } else if (by < -1) {
    high = shift_jam(high | (low != 0), -by);
    low = 0;
  }
  exponent = max(exponent, exponent_c);
  if (!minus) {
    low += term_low;
    high += term + (low < term_low);
    const int up = high >> 62 ? 0 : 1;
    return round_pack(sign, exponent - up, (high | (low != 0)) << up);
  }
  const bool borrow = low < term_low;
  low -= term_low;
  high -= term + borrow;
  if (high >> 63) {
    sign ^= SIGN;
    low = -low;
    high = ~high + !low;
  }
  if (!high) { /* then the last bit of low is 0 */
    if (!low) return 0;
    exponent -= 63;
    high = low >> 1;
    low = 0;
  }
  const int up = (int)clz(high) - 1;
  if (up) {
    high = high << up | low >> (64 - up);
    low <<= up;
  }
  return round_pack(sign, exponent - up, high | (low != 0));
}

#if FUSED
#define MUL_ADD(sum, x, y) f64_mul_add(x, y, sum)
#else
#define MUL_ADD(sum, x, y) f64_add(sum, f64_mul(x, y))
#endif

__kernel void soft_float(__global const ulong *a, __global const ulong *b, __global ulong *out, const int m,
                         const int n, const int depth)
{
  const int j = get_global_id(0);
  const int i = get_global_id(1);
  if (i >= m || j >= n) return;

  ulong sum = 0;
  for (int k = 0; k < depth; ++k) sum = MUL_ADD(sum, a[i * depth + k], b[k * n + j]);
  out[i * n + j] = sum;
}
