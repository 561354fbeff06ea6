/* matvec: out = A B where one operand is a vector x, for CPU devices. Memory bandwidth limits the speed.
 *
 * The other operand is the matrix W, J x K: B transposed if M is 1, A if N is 1. It is read once, in the order in
 * which it is stored:
 *
 *   matvec_rows   K is contiguous         matvec_columns   J is contiguous
 *
 *        W            x                        x_k   W
 *     j +--------+   +-+                   k   [ ] +--------+    the sums of BN j wait in local
 *       |========| . |k|  eight rows of W  k+1 [ ] |========|    memory; eight rows of W are added
 *       |========|   | |  at a time, each  k+2 [ ] |========|    to them at a time
 *       |========|   | |  one a dot        k+3 [ ] |========|
 *       +--------+   +-+  product                  +--------+
 *
 * Work-group (nc of J, range of K, z). With SPLIT 1 partial sums go to `partial`, and add_partial_sums adds them.
 *
 * Complex numbers: PLANES = 2 reals side by side. Real and imaginary parts of w and x have four products. Vectors of
 * reals sum each of the four, and `element` combines the sums and conjugates.
 *
 * Macros: BN, the most j that a work-group has in matvec_columns (LANES divides BN * PLANES); SPLIT 0, 1; those of
 * types.h, gemm.h and vectors.h.
 * Preconditions: those of vector_loads.h; in matvec_rows x has unit stride.
 * Technique: the level-2 BLAS.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/vector_loads.h"
#include "cpu/matvec_sums.h"
#include "cpu/add_partial_sums.h"

#if !defined(BN) || !defined(SPLIT)
#error "matvec.cl needs BN SPLIT"
#endif

#define AT_ONCE 8 /* rows of W that are read at the same time, to hide latency */
#define FOR_ROWS(r) UNROLL for (int r = 0; r < AT_ONCE; ++r)
#define FOR_PLANES(p) UNROLL for (int p = 0; p < PLANES; ++p)
/* The numbers of x and w. VECTOR and MATRIX, which of the two operands they are. */
#if X_IS_A
#define VECTOR a
#define MATRIX b
typedef A_REAL X_REAL;
typedef B_REAL W_REAL;
#define X_AT(p, i) REAL_A(p, i)
#define W_AT(p, i) REAL_B(p, i)
#define X_VEC(p) VEC_A(p)
#define W_VEC(p) VEC_B(p)
#else
#define VECTOR b
#define MATRIX a
typedef B_REAL X_REAL;
typedef A_REAL W_REAL;
#define X_AT(p, i) REAL_B(p, i)
#define W_AT(p, i) REAL_A(p, i)
#define X_VEC(p) VEC_B(p)
#define W_VEC(p) VEC_A(p)
#endif

/* The sum of result j: to this work-group's range of partial sums, or through the epilogue. */
INLINE void put_sum(const int j, const ACC_T sum, __global ACC_T *partial, const int split_k, RESULT_ARGS)
{
#if SPLIT
  partial[piece_at(get_group_id(1), split_k, 0, PIECES(X_IS_A ? N : M)) * LANES / PLANES + j] = sum;
#else
  store_sum(j, sum, RESULT);
#endif
}

#define MATVEC_ARGS GEMM_ARGS, const int nc, const int split_k, const int k_range, __global ACC_T *partial

#if PLANES == 2
/* The sum of w x from the sums of the products of real and imaginary parts. Names: w's part first. */
INLINE ACC_T element(const REAL re_re, const REAL re_im, const REAL im_re, const REAL im_im)
{
  return (ACC_T)(re_re - (W_SIGN * X_SIGN) * im_im, X_SIGN * re_im + W_SIGN * im_re);
}
#endif

/* sums[r] = rows[r] . x over `count` reals: vectors first, then single elements. The second plane is x with real
 * and imaginary parts exchanged. */
INLINE void dot_rows(
    ACC_T sums[AT_ONCE], __global const W_REAL *const rows[AT_ONCE], __global const X_REAL *x,
    const int count)
{
  VEC acc[PLANES][AT_ONCE];
  FOR_PLANES(p) FOR_ROWS(r) acc[p][r] = (VEC)(0);
  int k = 0;
  for (; k <= count - LANES; k += LANES) {
    VEC part[PLANES];
    part[0] = X_VEC(x + k);
#if PLANES == 2
    part[1].even = part[0].odd;
    part[1].odd = part[0].even;
#endif
    FOR_PLANES(p) FOR_ROWS(r) acc[p][r] = W_VEC(rows[r] + k) * part[p] + acc[p][r];
  }
  FOR_ROWS(r)
  {
    REAL sum[PLANES][PLANES] = {{0}}; /* [1: the other part of x than of w][imaginary part of w] */
    FOR_PLANES(p)
    {
      const REAL *lanes = (const REAL *)&acc[p][r];
      for (int l = 0; l < LANES; ++l) sum[p][l % PLANES] += lanes[l];
    }
    /* one element at a time: Intel's compiler vectorizes a loop over single reals with x[rest ^ p] wrongly */
    for (int rest = k; rest < count; rest += PLANES)
      FOR_PLANES(p) UNROLL for (int q = 0; q < PLANES; ++q)
        sum[p][q] += W_AT(rows[r], rest + q) * X_AT(x, rest + (p ^ q));
#if PLANES == 2
    sums[r] = element(sum[0][0], sum[1][0], sum[1][1], sum[0][1]);
#else
    sums[r] = sum[0][0];
#endif
  }
}

__kernel ONE_WIDE_ITEM void matvec_rows(MATVEC_ARGS)
{
  GEMM_BEGIN;
  __global const W_REAL *w = (__global const W_REAL *)MATRIX;
  __global const X_REAL *x = (__global const X_REAL *)VECTOR;
  const long ld = X_IS_A ? ldb : lda;
  const int length = X_IS_A ? N : M;
  const int j0 = get_group_id(0) * nc, j1 = min(length, j0 + nc);
  const int k0 = get_group_id(1) * k_range, k1 = min(K, k0 + k_range);
  for (int j = j0; j < j1; j += AT_ONCE) {
    __global const W_REAL *rows[AT_ONCE];
    ACC_T sums[AT_ONCE];
    FOR_ROWS(r) rows[r] = w + (min(j + r, length - 1) * ld + k0) * PLANES;
    dot_rows(sums, rows, x + (long)k0 * PLANES, (k1 - k0) * PLANES);
    for (int r = 0; r < min(AT_ONCE, j1 - j); ++r) put_sum(j + r, sums[r], partial, split_k, RESULT);
  }
}

/* sums[p] += x[p][0] * row 0 + x[p][1] * row 1 + ..., over `count` reals of each row. */
INLINE void add_rows(
    __local VEC (*sums)[BN * PLANES / LANES], __global const W_REAL *w, const long ld,
    const REAL x[PLANES][AT_ONCE], const int count)
{
  const int vectors = count / LANES;
  for (int v = 0; v < vectors; ++v) {
    VEC sum[PLANES];
    FOR_PLANES(p) sum[p] = sums[p][v];
    FOR_ROWS(r) FOR_PLANES(p) sum[p] = FMA_VEC((VEC)(x[p][r]), W_VEC(w + r * ld + v * LANES), sum[p]);
    FOR_PLANES(p) sums[p][v] = sum[p];
  }
  FOR_PLANES(p)
  {
    __local REAL *rest = (__local REAL *)sums[p];
    for (int j = vectors * LANES; j < count; ++j) FOR_ROWS(r) rest[j] = FMA_REAL(x[p][r], W_AT(w, r * ld + j), rest[j]);
  }
}

__kernel ONE_WIDE_ITEM void matvec_columns(MATVEC_ARGS)
{
  __local VEC sums[PLANES][BN * PLANES / LANES];
  GEMM_BEGIN;
  __global const W_REAL *w = (__global const W_REAL *)MATRIX;
  __global const X_REAL *x_reals = (__global const X_REAL *)VECTOR;
  const long step_w = (X_IS_A ? ldb : lda) * PLANES;
  const long step_x = (X_IS_A ? (TRANS_A ? lda : 1) : (TRANS_B ? 1 : ldb)) * PLANES;
  const int j0 = get_group_id(0) * nc, j1 = min(X_IS_A ? N : M, j0 + nc);
  const int k0 = get_group_id(1) * k_range, k1 = min(K, k0 + k_range);
  const int count = (j1 - j0) * PLANES;
  w += (long)j0 * PLANES;
  for (int v = 0; v < BN * PLANES / LANES; ++v) FOR_PLANES(p) sums[p][v] = (VEC)(0);
  int k = k0;
  for (; k <= k1 - AT_ONCE; k += AT_ONCE) {
    REAL x[PLANES][AT_ONCE];
    FOR_ROWS(r) FOR_PLANES(p) x[p][r] = X_AT(x_reals, (k + r) * step_x + p);
    add_rows(sums, w + k * step_w, step_w, x, count);
  }
  for (; k < k1; ++k)
    FOR_PLANES(p)
    {
      __local REAL *sum = (__local REAL *)sums[p];
      for (int j = 0; j < count; ++j) sum[j] = FMA_REAL(X_AT(x_reals, k * step_x + p), W_AT(w, k * step_w + j), sum[j]);
    }
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
    put_sum(j0 + j, sum, partial, split_k, RESULT);
  }
}
