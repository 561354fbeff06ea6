/* lines: the operands as lines of real numbers (residues.h), read as the bits of doubles.
 *
 *   line i of A, i < M; line j of B, j < N          element k of K; of complex numbers re, im, re, im, ..
 *
 * A_T and B_T are doubles or pairs of them, but only their bits are read: the program needs no double.
 * Macros: those of gemm.h.
 */
#include "include/gemm.h"

#define SIGN_BIT ((ulong)1 << 63)

/* One operand of `depth` real numbers a line. `across`: neighbouring lines, not neighbouring k, are neighbours in memory.
 * `conjugated`: imaginary parts change their signs. */
typedef struct { __global const ulong *from; long ld; int lines, depth, across, conjugated; } operand_t;

/* The operand A or, if `second`, B. (Structures go by pointers, because Oclgrind knows no other way.) */
INLINE void find_operand(
    operand_t *x, const bool second, __global const void *a, const long lda, __global const void *b, const long ldb,
    const int M, const int N, const int K)
{
  x->from = second ? (__global const ulong *)b : (__global const ulong *)a;
  x->ld = second ? ldb : lda;
  x->lines = second ? N : M;
  x->depth = K * PLANES;
  x->across = second ? !TRANS_B : TRANS_A;
  x->conjugated = second ? CONJ_B : CONJ_A;
}

/* Where the bits of real number n of a line are in `from`. */
INLINE long place_of(const operand_t *x, const int line, const int n)
{
  const int k = n / PLANES;
  return PLANES * (x->across ? k * x->ld + line : line * x->ld + k) + n % PLANES;
}

/* How far apart two numbers are that many lines, or that many real numbers (a multiple of PLANES), from each other. */
INLINE long step_of(const operand_t *x, const int lines, const int numbers)
{
  return x->across ? PLANES * lines + numbers * x->ld : lines * PLANES * x->ld + numbers;
}

/* What changes the sign of number n if it must change. */
INLINE ulong sign_of(const operand_t *x, const int n) { return x->conjugated && n % PLANES ? SIGN_BIT : 0; }

/* The significand of a finite double and the exponent of its last bit. */
INLINE ulong significand(const ulong bits, int *exponent)
{
  const int field = (int)(bits >> 52 & 0x7ff);
  *exponent = (field ? field : 1) - 1075;
  return (bits & (((ulong)1 << 52) - 1)) | (field ? (ulong)1 << 52 : 0);
}

/* round(x 2^shift), |x 2^shift| <= 2^62; halves away from zero. */
INLINE ulong whole_of(const ulong bits, const int shift)
{
  int exponent;
  const ulong whole = significand(bits, &exponent);
  const int up = exponent + shift;
  ulong result;
  if (up >= 0) result = up < 64 ? whole << up : 0; /* from 64 on, only zero */
  else result = up < -54 ? 0 : ((whole >> (-up - 1)) + 1) >> 1;
  return bits & SIGN_BIT ? -result : result;
}
