/* A solution of exercise 3 of docs/road/10_register.md: no local memory; each work-item sums TM x TN elements.
 *
 * `pyclmm road block_from_global.cl` checks it, and times it beside its neighbours.
 */
#include "include/gemm.h"

__kernel WORK_GROUP(BN / TN, BM / TM, 1) void matmul_block(GEMM_ARGS)
{
  GEMM_BEGIN;
  const int apart = BN / TN; /* columns of a work-item: neighbours read neighbouring elements of B */
  const int j = get_group_id(0) * BN + get_local_id(0), i = get_global_id(1) * TM;

  ACC_T acc[TM][TN];
  for (int m = 0; m < TM; ++m)
    for (int n = 0; n < TN; ++n) acc[m][n] = ACC_ZERO;
  for (int k = 0; k < K; ++k) {
    ACC_T x[TM], y[TN];
    for (int m = 0; m < TM; ++m) x[m] = GUARDED_A(a, i + m, k, lda, M, K);
    for (int n = 0; n < TN; ++n) y[n] = GUARDED_B(b, k, j + n * apart, ldb, K, N);
    for (int m = 0; m < TM; ++m)
      for (int n = 0; n < TN; ++n) acc[m][n] = MAC(acc[m][n], x[m], y[n]);
  }
  for (int m = 0; m < TM; ++m)
    for (int n = 0; n < TN; ++n) STORE_RESULT(i + m, j + n * apart, acc[m][n], RESULT);
}
