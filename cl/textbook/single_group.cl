/* single_group: out = A B in one work-group.
 *
 *   work-item (lj, li) of the only work-group, of size N x M  ->  out(li, lj)
 *
 * The host refuses products whose M N exceeds the device's work-group limit. This kernel shows how little of a
 * device one work-group can use: a single compute unit. Each product of a stack takes one work-group.
 *
 * Macros: those of types.h and gemm.h. Technique: the one-block exercise of CUDA and OpenCL courses.
 */
#include "include/gemm.h"

__kernel void matmul_single_group(GEMM_ARGS)
{
  GEMM_BEGIN;
  const int j = get_local_id(0);
  const int i = get_local_id(1);

  ACC_T acc = ACC_ZERO;
  for (int k = 0; k < K; ++k) {
    const ACC_T x = LOAD_A(a, A_INDEX(i, k, lda));
    const ACC_T y = LOAD_B(b, B_INDEX(k, j, ldb));
    acc = MAC(acc, x, y);
  }
  STORE_RESULT(i, j, acc, RESULT);
}
