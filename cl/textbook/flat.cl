/* flat: out = A B on a 1-D NDRange.
 *
 *   work-item id  ->  row i = id / N, column j = id % N;  work-items with id >= M N do nothing
 *
 *   id   0 1 2 3 4 | 5 6 7 ...        neighbouring ids are neighbours in a row of out, except
 *        row 0     | row 1            at the end of a row; short rows leave no work-item idle
 *
 * Macros: those of types.h and gemm.h. Technique: index arithmetic in place of a 2-D NDRange.
 */
#include "include/gemm.h"

__kernel void matmul_flat(GEMM_ARGS)
{
  GEMM_BEGIN;
  const size_t id = get_global_id(0);
  if (id >= (size_t)M * N) return;
  const int i = id / N;
  const int j = id % N;

  ACC_T acc = ACC_ZERO;
  for (int k = 0; k < K; ++k) {
    const ACC_T x = LOAD_A(a, A_INDEX(i, k, lda));
    const ACC_T y = LOAD_B(b, B_INDEX(k, j, ldb));
    acc = MAC(acc, x, y);
  }
  STORE_RESULT(i, j, acc, RESULT);
}
