/* moduli: the residue of a sum of products of residues, for products of `residues` (cl/residues/residues.h).
 *
 * Product z is taken modulo number z % MODULI. That is done once, before the sum is stored: by STORE_RESULT (gemm.h), or
 * by reduce_sums where matrix units leave sums (nvidia/fragment.h).
 *
 * Macros: MODULI, how many there are; MODULI_LIST. Without them sums stay as they are.
 *
 * A sum x of K products of two numbers within -128 .. 128 has |x| <= K 2^14. For K < 2^17 it is within -B .. B, where B
 * is the largest multiple of p that is at most 2^31. u = x + B is not negative and has the same residue. The quotient
 * mul_hi(u, floor(2^32 / p)) is at most 1 too small, so one conditional subtraction ends the division.
 *
 * Sums may be float32 for K <= 2^10: whole numbers up to 2^24 are exact.
 */
#include "include/types.h"

#ifdef MODULI_LIST
__constant uint moduli[] = {MODULI_LIST};

/* A sum modulo modulus number i, from 0 to p - 1. */
INLINE ACC_T sum_residue(const ACC_T sum, const int i)
{
  const uint x = (uint)(int)sum; /* of a float32, a whole number */
  const uint p = moduli[i], reciprocal = (uint)(((ulong)1 << 32) / p);
  const uint u = x + 0x80000000u / p * p;
  const uint rest = u - mul_hi(u, reciprocal) * p;
  return min(rest, rest - p); /* rest - p wraps around if rest < p */
}
#define REDUCED(sum, z) sum_residue(sum, (int)((z) % MODULI))
#else
#define REDUCED(sum, z) (sum)
#endif
