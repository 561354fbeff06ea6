/* matvec: which operand is the vector x and which is the J x K matrix w, and where the J sums are stored.
 *
 * Macros: X_IS_A, 1: M is 1 and A is the vector; 0: N is 1 and B is the vector.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "cpu/vectors.h"

#ifndef X_IS_A
#error "matvec_sums.h needs X_IS_A"
#endif
#if X_IS_A
#define W_SIGN (CONJ_B ? -1 : 1)
#define X_SIGN (CONJ_A ? -1 : 1)
#else
#define W_SIGN (CONJ_A ? -1 : 1)
#define X_SIGN (CONJ_B ? -1 : 1)
#endif

INLINE void store_sum(const int j, const ACC_T sum, RESULT_ARGS)
{
  STORE_RESULT(X_IS_A ? 0 : j, X_IS_A ? j : 0, sum, RESULT);
}

/* A piece of partial sums is eight vectors (add_partial_sums.h). */
#define PIECE_VECS 8
#define PIECE_SUMS (PIECE_VECS * LANES / PLANES)
#define PIECES(j) (((j) + PIECE_SUMS - 1) / PIECE_SUMS)
INLINE void store_piece(const VEC *sum, const int piece, RESULT_ARGS)
{
  const int first = piece * PIECE_SUMS, end = min(X_IS_A ? N : M, first + PIECE_SUMS);
  for (int j = first; j < end; ++j) store_sum(j, ((const ACC_T *)sum)[j - first], RESULT);
}
