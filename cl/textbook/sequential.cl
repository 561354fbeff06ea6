/* sequential: out = A B by the triple loop, in a single work-item.
 *
 *   for i: for j: out(i, j) = sum over k of A(i, k) B(k, j)
 *
 * For float32 (complex64) the host passes ACC_TYPE float64 (complex128) if the device has it. Speed-ups are
 * relative to this kernel, and its wider sum is the reference for errors.
 *
 * Macros: those of types.h and gemm.h. Technique: the definition.
 */
#include "include/gemm.h"

__kernel void matmul_sequential(GEMM_ARGS)
{
  GEMM_BEGIN;
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < N; ++j) {
      ACC_T acc = ACC_ZERO;
      for (int k = 0; k < K; ++k) {
        const ACC_T x = LOAD_A(a, A_INDEX(i, k, lda));
        const ACC_T y = LOAD_B(b, B_INDEX(k, j, ldb));
        acc = MAC(acc, x, y);
      }
      STORE_RESULT(i, j, acc, RESULT);
    }
  }
}
