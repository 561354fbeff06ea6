/* A solution of exercise 3 of docs/road/08_vector.md: TN neighbouring columns are a vector, loaded where it lies.
 *
 * `pyclmm road vectors_from_global.cl` checks it, and times it beside its neighbours.
 * types: float32
 */
#include "include/gemm.h"

#define VECTOR CAT(float, TN)
#define VLOAD CAT(vload, TN)
#define VSTORE CAT(vstore, TN)

__kernel WORK_GROUP(BN / TN, BM / TM, 1) void matmul_vector(GEMM_ARGS)
{
  GEMM_BEGIN;
  const int j = get_global_id(0) * TN, i = get_global_id(1) * TM;

  VECTOR acc[TM];
  for (int m = 0; m < TM; ++m) acc[m] = (VECTOR)(0.0f);
  for (int k = 0; k < K; ++k) {
    VECTOR y;
    if (!TRANS_B && j + TN <= N) {
      y = VLOAD(0, b + B_INDEX(k, j, ldb));
    } else { /* the last vector of a row reaches beyond it; with TRANS_B neighbours lie ldb apart */
      float one_by_one[TN];
      for (int n = 0; n < TN; ++n) one_by_one[n] = GUARDED_B(b, k, j + n, ldb, K, N);
      y = VLOAD(0, one_by_one);
    }
    for (int m = 0; m < TM; ++m) acc[m] += GUARDED_A(a, i + m, k, lda, M, K) * y;
  }
  for (int m = 0; m < TM; ++m) {
    float row[TN];
    VSTORE(acc[m], 0, row);
    for (int n = 0; n < TN; ++n) STORE_RESULT(i + m, j + n, row[n], RESULT);
  }
}
