/* matvec: which operand is the vector x, which the matrix W of J lines, and where the J sums go.
 *
 * Macros: X_IS_A 1: M is 1 and A the vector, 0: N is 1 and B is.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "cpu/vectors.h"

#ifndef X_IS_A
#error "matvec_operands.h needs X_IS_A"
#endif
#if X_IS_A
#define J N
#define W b
#define W_LD ldb
#define W_SIGN (CONJ_B ? -1 : 1)
#define X a
#define X_STRIDE (TRANS_A ? lda : 1)
#define X_SIGN (CONJ_A ? -1 : 1)
#define STORE_SUM(j, sum) STORE_RESULT(0, j, sum)
#else
#define J M
#define W a
#define W_LD lda
#define W_SIGN (CONJ_A ? -1 : 1)
#define X b
#define X_STRIDE (TRANS_B ? 1 : ldb)
#define X_SIGN (CONJ_B ? -1 : 1)
#define STORE_SUM(j, sum) STORE_RESULT(j, 0, sum)
#endif

/* Partial sums lie in pieces of eight vectors (add_partial_sums.h). */
#define PIECE_VECS 8
#define PIECE_SUMS (PIECE_VECS * LANES / PLANES)
#define PIECES(j) (((j) + PIECE_SUMS - 1) / PIECE_SUMS)
INLINE void store_piece(const VEC *sum, const int piece, OUT_ARGS)
{
  const int first = piece * PIECE_SUMS;
  for (int j = first; j < min(J, first + PIECE_SUMS); ++j) STORE_SUM(j, ((const ACC_T *)sum)[j - first]);
}
