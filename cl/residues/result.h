/* result: a sum of 128 bits as an element of the result (residues.h, limbs.cl).
 *
 * RESULT_OF(v): the bits of a double, or of two for a complex number, as an ACC_T.
 */
#include "include/gemm.h"
#include "include/soft_double.h"

#if SOFT_FLOAT64
#define AS_REAL(bits) (bits)
#else
#define AS_REAL(bits) as_double(bits)
#endif
#if PLANES == 2
#define RESULT_OF(v) ((ACC_T)(AS_REAL((v)[0]), AS_REAL((v)[1])))
#else
#define RESULT_OF(v) AS_REAL((v)[0])
#endif

/* (high 2^64 + low) 2^exponent as the bits of a double, rounded once. The sum is signed, and not -2^127. */
INLINE ulong rounded_sum(ulong high, ulong low, const int exponent)
{
  const bool negative = (long)high < 0;
  if (negative) {
    low = -low;
    high = ~high + !low;
  }
  if (!high) return rounded_double(negative, low, exponent);
  const int up = (int)clz(high); /* at least 1 */
  const ulong upper = high << up | low >> (64 - up);
  return rounded_long(negative, upper | ((low << up) != 0), exponent + 64 - up);
}
