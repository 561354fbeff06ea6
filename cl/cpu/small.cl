/* small: out = A B with few rows and columns, of a long stack or along a long K, for CPU devices. Work-groups take
 * longer to start than such products take.
 *
 *   work-group (chunk, range of K)      z0 z0+1 z0+2          z1-1
 *   computes `span` products one      | #  | #  | #  |  ...  | #  |    # TM x TN sums in registers at a time
 *   after the other
 *
 * Each element is loaded by itself: no vector of neighbours is needed, so any layout is read in place. With SPLIT 1 the
 * sums of each range of K go to `partial`, and add_small adds them in the order of K.
 *
 *   sum (i, j) of product z and range r  at  partial[((r * stack + z) * M + i) * N + j]
 *
 * Macros: TM, TN, the tile; SPLIT 0, 1; those of gemm.h. Rows and columns past the last one repeat it, and are not stored.
 */
#include "include/gemm.h"

#if !defined(TM) || !defined(TN) || !defined(SPLIT)
#error "small.cl needs TM TN SPLIT"
#endif
#define SMALL_ARGS \
  GEMM_ARGS, const int stack, const int span, const int k_range, const int split_k, __global ACC_T *partial
/* RESULT of product z of the stack. */
#define RESULT_OF(z)                                                                                   \
  M, N, out + out_offset + BATCH_OFFSET_OF(batch_offsets, z, 3), ldo,                                  \
    c + c_offset + BATCH_OFFSET_OF(batch_offsets, z, 2), c_rs, c_cs, bias + bias_offset, bias_stride, alpha, beta

INLINE void store_sum(const int i, const int j, const ACC_T sum, RESULT_ARGS) { STORE_RESULT(i, j, sum, RESULT); }

/* sums = rows i0.. of A times columns j0.. of B, over k0 <= k < k1 */
INLINE void tile(
    ACC_T sums[TM][TN], __global const A_T *a, const long lda, __global const B_T *b, const long ldb,
    const int i0, const int j0, const int M, const int N, const int k0, const int k1)
{
  UNROLL for (int i = 0; i < TM; ++i) UNROLL for (int j = 0; j < TN; ++j) sums[i][j] = ACC_ZERO;
  for (int k = k0; k < k1; ++k) {
    ACC_T y[TN];
    UNROLL for (int j = 0; j < TN; ++j) y[j] = LOAD_B(b, B_INDEX(k, min(j0 + j, N - 1), ldb));
    UNROLL for (int i = 0; i < TM; ++i) {
      const ACC_T x = LOAD_A(a, A_INDEX(min(i0 + i, M - 1), k, lda));
      UNROLL for (int j = 0; j < TN; ++j) sums[i][j] = MAC(sums[i][j], x, y[j]);
    }
  }
}

__kernel ONE_ITEM void matmul_small(SMALL_ARGS)
{
  if (GATE_SHUT) return;
  const int z0 = get_group_id(0) * span, z1 = z0 + min(span, stack - z0);
  const int range = get_group_id(1), k0 = range * k_range, k1 = k0 + min(k_range, K - k0);
  for (int z = z0; z < z1; ++z) {
    __global const A_T *a_z = a + a_offset + BATCH_OFFSET_OF(batch_offsets, z, 0);
    __global const B_T *b_z = b + b_offset + BATCH_OFFSET_OF(batch_offsets, z, 1);
    for (int i0 = 0; i0 < M; i0 += TM)
      for (int j0 = 0; j0 < N; j0 += TN) {
        ACC_T sums[TM][TN];
        tile(sums, a_z, lda, b_z, ldb, i0, j0, M, N, k0, k1);
        for (int i = i0; i < min(M, i0 + TM); ++i)
          for (int j = j0; j < min(N, j0 + TN); ++j) {
#if SPLIT
            partial[(((long)range * stack + z) * M + i) * N + j] = sums[i - i0][j - j0];
#else
            store_sum(i, j, sums[i - i0][j - j0], RESULT_OF(z));
#endif
          }
      }
  }
}

#if SPLIT
/* The second launch: a work-group, which is one work-item, adds the sums of `span` products. */
__kernel ONE_ITEM void add_small(SMALL_ARGS)
{
  const int z0 = get_group_id(0) * span, z1 = z0 + min(span, stack - z0);
  for (int z = z0; z < z1; ++z)
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N; ++j) {
        ACC_T sum = ACC_ZERO;
        for (int range = 0; range < split_k; ++range)
          sum = ADD(sum, partial[(((long)range * stack + z) * M + i) * N + j]);
        store_sum(i, j, sum, RESULT_OF(z));
      }
}
#endif
