/* matvec: out = A B where one operand is a vector x, or a few vectors, for CPU devices. Memory bandwidth limits the
 * speed.
 *
 * The other operand is the matrix W, J x K: B transposed if M <= N, A otherwise. It is read from memory once, in the
 * order in which it is stored:
 *
 *   matvec_rows   K is contiguous         matvec_columns   J is contiguous
 *
 *        W            x                        x_k   W
 *     j +--------+   +-+                   k   [ ] +--------+    the sums of BN j wait in local
 *       |========| . |k|  ROWS rows of W   k+1 [ ] |========|    memory; eight rows of W are added
 *       |========|   | |  at a time, each  k+2 [ ] |========|    to them at a time
 *       |========|   | |  one a dot        k+3 [ ] |========|
 *       +--------+   +-+  product                  +--------+
 *
 * Of several vectors, matvec_rows multiplies VECTORS at a time with the same ROWS rows of W, which caches keep.
 *
 * Work-group (nc of J, range of K, `span` products of the stack in matvec_rows, one in matvec_columns). With SPLIT 1
 * there are several ranges (last_range.h).
 *
 * Complex numbers: PLANES = 2 reals side by side. Real and imaginary parts of w and x have four products. Vectors of
 * reals sum each of the four, and `element` combines the sums and conjugates.
 *
 * Macros: BN, the most j that a work-group has in matvec_columns (LANES divides BN * PLANES); SPLIT 0, 1; those of
 * dot_rows.h, types.h, gemm.h and vectors.h.
 * Preconditions: those of vector_loads.h; X_GAPS 0 unless matvec_rows has a single vector; several vectors come with W
 * stored along K and SPLIT 0.
 * Technique: the level-2 BLAS.
 */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/dot_rows.h"
#include "cpu/last_range.h"

#if !defined(BN) || !defined(SPLIT)
#error "matvec.cl needs BN SPLIT"
#endif

#define AT_ONCE 8 /* rows of W that matvec_columns reads at the same time, to hide latency */

/* The sum of result j of vector v: to this work-group's range of partial sums, or through the epilogue. */
INLINE void put_sum(const int v, const int j, const ACC_T sum RANGE_ARGS, RESULT_ARGS)
{
#if SPLIT
  partial[(BATCH_ENTRY * get_num_groups(1) + get_group_id(1)) * OF_W(M, N) + j] = sum;
#else
  store_sum(v, j, sum, RESULT);
#endif
}

/* After the last sum of results j0 to j1. */
INLINE void end_range(const int j0, const int j1 RANGE_ARGS, RESULT_ARGS)
{
#if SPLIT
  const int sums = OF_W(M, N);
  partial += BATCH_ENTRY * get_num_groups(1) * sums;
  if (ends_last(arrived + BATCH_ENTRY * get_num_groups(0) + get_group_id(0), get_num_groups(1)))
    for (int j = j0; j < j1; ++j) store_sum(0, j, sum_of_ranges(partial + j, sums), RESULT);
#endif
}

#define MATVEC_ARGS GEMM_ARGS, const int nc, const int k_range, const int stack, const int span RANGE_ARGS

/* This work-group's part of one product. */
INLINE void multiply_rows(
    __global const A_T *a, const long lda, __global const B_T *b, const long ldb, const int K, const int nc,
    const int k_range RANGE_ARGS, RESULT_ARGS)
{
  __global const W_REAL *w = (__global const W_REAL *)MATRIX;
  __global const X_REAL *x = (__global const X_REAL *)VECTOR;
  const long ld = OF_W(lda, ldb), next_x = OF_X(lda, ldb), step_x = X_GAPS ? next_x : 1;
  const int length = OF_W(M, N), few = OF_X(M, N);
  const int j0 = get_group_id(0) * nc, j1 = min(length, j0 + nc);
  const int k0 = get_group_id(1) * k_range, k1 = min(K, k0 + k_range);
  for (int j = j0; j < j1; j += ROWS) {
    __global const W_REAL *rows[ROWS];
    UNROLL for (int r = 0; r < ROWS; ++r) rows[r] = w + (min(j + r, length - 1) * ld + k0) * PLANES;
    for (int v0 = 0; v0 < few; v0 += VECTORS) {
      __global const X_REAL *xs[VECTORS];
      ACC_T sums[VECTORS][ROWS];
      UNROLL for (int v = 0; v < VECTORS; ++v) xs[v] = x + (min(v0 + v, few - 1) * next_x + k0 * step_x) * PLANES;
      dot_rows(sums, rows, xs, step_x, (k1 - k0) * PLANES);
      for (int v = 0; v < min(VECTORS, few - v0); ++v)
        for (int r = 0; r < min(ROWS, j1 - j); ++r) put_sum(v0 + v, j + r, sums[v][r] RANGES, RESULT);
    }
  }
  end_range(j0, j1 RANGES, RESULT);
}

__kernel ONE_WIDE_ITEM void matvec_rows(MATVEC_ARGS)
{
  if (GATE_SHUT) return;
  const int z0 = BATCH_ENTRY * span;
  for (int z = z0; z < z0 + min(span, stack - z0); ++z)
    multiply_rows(
        a + a_offset + BATCH_OFFSET_OF(batch_offsets, z, 0), lda, b + b_offset + BATCH_OFFSET_OF(batch_offsets, z, 1), ldb,
        K, nc, k_range RANGES, M, N, out + out_offset + BATCH_OFFSET_OF(batch_offsets, z, 3), ldo,
        C_AT(BATCH_OFFSET_OF(batch_offsets, z, 2)), c_rs, c_cs, BIAS_AT(0), bias_stride, alpha, beta);
}

/* sums[p] += x[0] * row 0 + x[1] * row 1 + ... of `rows`, over `count` reals of each row. */
INLINE void add_rows(
    __local VEC (*sums)[BN * PLANES / LANES], __global const W_REAL *w, const long ld,
    __global const X_REAL *x_reals, const long step_x, const int rows, const int count)
{
  REAL x[PLANES][AT_ONCE];
  UNROLL for (int r = 0; r < rows; ++r) FOR_PLANES(p) x[p][r] = X_AT(x_reals, r * step_x + p);
  const int vectors = count / LANES;
  for (int v = 0; v < vectors; ++v) {
    VEC sum[PLANES];
    FOR_PLANES(p) sum[p] = sums[p][v];
    UNROLL for (int r = 0; r < rows; ++r)
      FOR_PLANES(p) sum[p] = FMA_VEC((VEC)(x[p][r]), W_VEC(w + r * ld + v * LANES), sum[p]);
    FOR_PLANES(p) sums[p][v] = sum[p];
  }
  FOR_PLANES(p)
  {
    __local REAL *rest = (__local REAL *)sums[p];
    for (int j = vectors * LANES; j < count; ++j)
      UNROLL for (int r = 0; r < rows; ++r) rest[j] = mac_real(rest[j], x[p][r], W_AT(w, r * ld + j));
  }
}

__kernel ONE_WIDE_ITEM void matvec_columns(MATVEC_ARGS)
{
  __local VEC sums[PLANES][BN * PLANES / LANES];
  GEMM_BEGIN;
  __global const W_REAL *w = (__global const W_REAL *)MATRIX;
  __global const X_REAL *x_reals = (__global const X_REAL *)VECTOR;
  const long step_w = OF_W(lda, ldb) * PLANES;
  const long step_x = (OF_X(TRANS_A ? lda : 1, TRANS_B ? 1 : ldb)) * PLANES;
  const int j0 = get_group_id(0) * nc, j1 = min(OF_W(M, N), j0 + nc);
  const int k0 = get_group_id(1) * k_range, k1 = min(K, k0 + k_range);
  const int count = (j1 - j0) * PLANES;
  w += (long)j0 * PLANES;
  for (int v = 0; v < (count + LANES - 1) / LANES; ++v) FOR_PLANES(p) sums[p][v] = (VEC)(0);
  int k = k0;
  for (; k <= k1 - AT_ONCE; k += AT_ONCE)
    add_rows(sums, w + k * step_w, step_w, x_reals + k * step_x, step_x, AT_ONCE, count);
  for (; k < k1; ++k) add_rows(sums, w + k * step_w, step_w, x_reals + k * step_x, step_x, 1, count);
  __local const REAL *s = (__local const REAL *)sums[0];
#if PLANES == 2
  __local const REAL *t = (__local const REAL *)sums[1];
#endif
  for (int j = 0; j < j1 - j0; ++j) {
#if PLANES == 2
    const ACC_T sum = element(s[2 * j], t[2 * j], s[2 * j + 1], t[2 * j + 1]);
#else
    const ACC_T sum = s[j];
#endif
    put_sum(0, j0 + j, sum RANGES, RESULT);
  }
  end_range(j0, j1 RANGES, RESULT);
}
