/* matvec: which operand is the vector x and which is the J x K matrix w, their numbers, and where sums are stored.
 *
 * Macros: X_IS_A, 1: M <= N, A is the vector, or the vectors; 0: B is.
 */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/vector_loads.h"

#ifndef X_IS_A
#error "matvec_sums.h needs X_IS_A"
#endif
/* VECTOR and MATRIX, which of the operands they are; their numbers; 1 or -1 for the imaginary parts. */
#if X_IS_A
#define VECTOR a
#define MATRIX b
typedef A_REAL X_REAL;
typedef B_REAL W_REAL;
#define X_AT(p, i) REAL_A(p, i)
#define W_AT(p, i) REAL_B(p, i)
#define X_VEC(p) VEC_A(p)
#define W_VEC(p) VEC_B(p)
#define X_SIGN (CONJ_A ? -1 : 1)
#define W_SIGN (CONJ_B ? -1 : 1)
#else
#define VECTOR b
#define MATRIX a
typedef B_REAL X_REAL;
typedef A_REAL W_REAL;
#define X_AT(p, i) REAL_B(p, i)
#define W_AT(p, i) REAL_A(p, i)
#define X_VEC(p) VEC_B(p)
#define W_VEC(p) VEC_A(p)
#define X_SIGN (CONJ_B ? -1 : 1)
#define W_SIGN (CONJ_A ? -1 : 1)
#endif
#define FOR_PLANES(p) UNROLL for (int p = 0; p < PLANES; ++p)

#if PLANES == 2
/* The sum of w x from the sums of the products of real and imaginary parts. Names: w's part first. */
INLINE ACC_T element(const REAL re_re, const REAL re_im, const REAL im_re, const REAL im_im)
{
  return (ACC_T)(re_re - (W_SIGN * X_SIGN) * im_im, X_SIGN * re_im + W_SIGN * im_re);
}
#endif

INLINE void store_sum(const int v, const int j, const ACC_T sum, RESULT_ARGS)
{
  STORE_RESULT(X_IS_A ? v : j, X_IS_A ? j : v, sum, RESULT);
}

/* A piece of partial sums is eight vectors (add_partial_sums.h). */
#define PIECE_VECS 8
#define PIECE_SUMS (PIECE_VECS * LANES / PLANES)
#define PIECES(j) (((j) + PIECE_SUMS - 1) / PIECE_SUMS)
INLINE void store_piece(const VEC *sum, const int piece, RESULT_ARGS)
{
  const int first = piece * PIECE_SUMS, end = min(X_IS_A ? N : M, first + PIECE_SUMS);
  for (int j = first; j < end; ++j) store_sum(0, j, ((const ACC_T *)sum)[j - first], RESULT);
}
