/* lines: the operands as lines of real numbers (residues.h), read as the bits of doubles.
 *
 *   line i of A, i < M; line j of B, j < N          element k of K; of complex numbers re, im, re, im, ..
 *
 * A_T and B_T are doubles or pairs of them, but only their bits are read: the program needs no double.
 * Macros: those of gemm.h.
 */
#include "include/attributes.h"
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

/* Bits of real number n of a line, which must exist. */
INLINE ulong bits_at(const operand_t *x, const int line, const int n)
{
  const int k = n / PLANES, part = n % PLANES;
  const long at = x->across ? (long)k * x->ld + line : (long)line * x->ld + k;
  return x->from[PLANES * at + part] ^ (part && x->conjugated ? SIGN_BIT : 0);
}

/* The significand of a finite double and the exponent of its last bit. */
INLINE ulong significand(const ulong bits, int *exponent)
{
  const int field = (int)(bits >> 52 & 0x7ff);
  *exponent = (field ? field : 1) - 1075;
  return (bits & (((ulong)1 << 52) - 1)) | (field ? (ulong)1 << 52 : 0);
}
