/* A solution of exercise 3 of docs/road/06_strip.md: no local memory; each work-item sums TM elements of one column.
 *
 * `pyclmm road strip_from_global.cl` checks it, and times it beside its neighbours.
 */
#include "include/gemm.h"

__kernel WORK_GROUP(BN, BM / TM, 1) void matmul_strip(GEMM_ARGS)
{
  GEMM_BEGIN;
  const int j = get_global_id(0), i = get_global_id(1) * TM;

  ACC_T acc[TM];
  for (int m = 0; m < TM; ++m) acc[m] = ACC_ZERO;
  for (int k = 0; k < K; ++k) {
    const ACC_T y = GUARDED_B(b, k, j, ldb, K, N);
    for (int m = 0; m < TM; ++m) acc[m] = MAC(acc[m], GUARDED_A(a, i + m, k, lda, M, K), y);
  }
  for (int m = 0; m < TM; ++m) STORE_RESULT(i + m, j, acc[m], RESULT);
}
