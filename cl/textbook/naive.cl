/* naive: out = A B, one work-item for each element.
 *
 *   work-item (j, i) of a 2-D NDRange  ->  out(i, j) = sum over k of A(i, k) B(k, j)
 *
 *          j                       dimension 0 runs along j, the contiguous axis of out,
 *      +---------+                 so that neighbouring work-items read neighbouring
 *    i |    x    |                 elements of B and write neighbouring elements of out
 *      +---------+
 *
 * Each work-item reads 2 K elements for 2 K operations: each element of A is read N times, each of B M times.
 * The global size is rounded up to whole work-groups. Work-items outside out do nothing.
 * Macros: those of types.h and gemm.h. Technique: the first kernel of every OpenCL course.
 */
#include "include/gemm.h"

__kernel void matmul_naive(GEMM_ARGS)
{
  GEMM_BEGIN;
  const int j = get_global_id(0);
  const int i = get_global_id(1);
  if (i >= M || j >= N) return;

  ACC_T acc = ACC_ZERO;
  for (int k = 0; k < K; ++k) {
    const ACC_T x = LOAD_A(a, A_INDEX(i, k, lda));
    const ACC_T y = LOAD_B(b, B_INDEX(k, j, ldb));
    acc = MAC(acc, x, y);
  }
  STORE_RESULT(i, j, acc, RESULT);
}
