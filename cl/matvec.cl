/* matvec: out = A B where one operand is a vector x, for CPU devices, at the speed of memory.
 *
 * The other operand is the matrix W, J x K: B transposed where M is 1, A where N is 1. It is read once,
 * in the order in which it lies:
 *
 *   matvec_rows   K lies together         matvec_columns   J lies together
 *
 *        W            x                        x_k   W
 *     j +--------+   +-+                   k   [ ] +--------+    the sums of BN j wait in local
 *       |========| . |k|  eight rows of W  k+1 [ ] |========|    memory; eight rows of W are added
 *       |========|   | |  at a time, each  k+2 [ ] |========|    to them at a time
 *       |========|   | |  one a dot        k+3 [ ] |========|
 *       +--------+   +-+  product                  +--------+
 *
 * Work-group (piece of J, share of K, z). With SPLIT the shares' sums go to `shares`, (z, share, j), and
 * matvec_reduce adds them up in order.
 *
 * Macros: X_IS_A 1: M is 1 and A the vector, 0: N is 1 and B is; BN, the most j a work-group has in
 * matvec_columns, a multiple of LANES; SPLIT 0, 1. Those of types.h, gemm.h and vectors.h.
 * Preconditions: W and x hold ACC_T, real, not conjugated; in matvec_rows x has unit stride.
 * Technique: the level-2 BLAS.
 */
#if !defined(X_IS_A) || !defined(BN) || !defined(SPLIT)
#error "matvec.cl needs X_IS_A BN SPLIT"
#endif

#if X_IS_A
#define J N
#define W b
#define W_LD ldb
#define X a
#define X_STRIDE (TRANS_A ? lda : 1)
#define STORE_SUM(j, sum) STORE_RESULT(0, j, sum)
#else
#define J M
#define W a
#define W_LD lda
#define X b
#define X_STRIDE (TRANS_B ? 1 : ldb)
#define STORE_SUM(j, sum) STORE_RESULT(j, 0, sum)
#endif
#define AT_ONCE 8 /* rows of W: streams that hide each other's latency */
#define FOR_ROWS _Pragma("unroll") for (int r = 0; r < AT_ONCE; ++r)
#define LOAD_VEC(p) (*(__global const LOOSE_VEC *)(p))

#if SPLIT
#define PUT_SUM(j, sum) shares[(get_global_id(2) * splits + get_group_id(1)) * J + (j)] = (sum)
#else
#define PUT_SUM(j, sum) STORE_SUM(j, sum)
#endif

#define MATVEC_ARGS GEMM_ARGS, const int nc, const int splits, const int split_k, __global REAL *shares
#define MATVEC_BEGIN                              \
  GEMM_BEGIN;                                     \
  const int j0 = get_group_id(0) * nc;            \
  const int j1 = min(J, j0 + nc);                 \
  const int k0 = get_group_id(1) * split_k;       \
  const int k1 = min(K, k0 + split_k)

/* sums[r] = rows[r] . x over `count` elements: vectors first, then what is left. */
INLINE void dot_rows(
    REAL sums[AT_ONCE], __global const REAL *const rows[AT_ONCE], __global const REAL *x,
    const int count)
{
  VEC acc[AT_ONCE];
  FOR_ROWS acc[r] = (VEC)(0);
  int k = 0;
  for (; k <= count - LANES; k += LANES) {
    const VEC part = LOAD_VEC(x + k);
    FOR_ROWS acc[r] = LOAD_VEC(rows[r] + k) * part + acc[r];
  }
  FOR_ROWS
  {
    const REAL *lanes = (const REAL *)&acc[r];
    REAL sum = 0;
    for (int l = 0; l < LANES; ++l) sum += lanes[l];
    for (int rest = k; rest < count; ++rest) sum += rows[r][rest] * x[rest];
    sums[r] = sum;
  }
}

__kernel ONE_ITEM void matvec_rows(MATVEC_ARGS)
{
  MATVEC_BEGIN;
  for (int j = j0; j < j1; j += AT_ONCE) {
    __global const REAL *rows[AT_ONCE];
    REAL sums[AT_ONCE];
    FOR_ROWS rows[r] = W + min(j + r, J - 1) * W_LD + k0;
    dot_rows(sums, rows, X + k0, k1 - k0);
    for (int r = 0; r < min(AT_ONCE, j1 - j); ++r) PUT_SUM(j + r, sums[r]);
  }
}

/* sums += x[0] row 0 + x[1] row 1 + ..., `count` elements of each row. */
INLINE void add_rows(
    __local VEC *sums, __global const REAL *w, const long ld, const REAL x[AT_ONCE], const int count)
{
  const int vectors = count / LANES;
  for (int v = 0; v < vectors; ++v) {
    VEC sum = sums[v];
    FOR_ROWS sum = x[r] * LOAD_VEC(w + r * ld + v * LANES) + sum;
    sums[v] = sum;
  }
  __local REAL *rest = (__local REAL *)sums;
  for (int j = vectors * LANES; j < count; ++j) FOR_ROWS rest[j] += x[r] * w[r * ld + j];
}

__kernel ONE_ITEM void matvec_columns(MATVEC_ARGS)
{
  __local VEC sums[BN / LANES];
  MATVEC_BEGIN;
  for (int v = 0; v < BN / LANES; ++v) sums[v] = (VEC)(0);
  int k = k0;
  for (; k <= k1 - AT_ONCE; k += AT_ONCE) {
    REAL x[AT_ONCE];
    FOR_ROWS x[r] = X[(k + r) * X_STRIDE];
    add_rows(sums, W + k * W_LD + j0, W_LD, x, j1 - j0);
  }
  __local REAL *sum = (__local REAL *)sums;
  for (; k < k1; ++k)
    for (int j = j0; j < j1; ++j) sum[j - j0] += X[k * X_STRIDE] * W[k * W_LD + j];
  for (int j = j0; j < j1; ++j) PUT_SUM(j, sum[j - j0]);
}

#if SPLIT
/* Adds the shares of nc results, in their order, and stores them. */
__kernel ONE_ITEM void matvec_reduce(GEMM_ARGS, const int nc, const int splits, __global REAL *shares)
{
  GEMM_BEGIN;
  const int j0 = get_group_id(0) * nc;
  for (int j = j0; j < min(J, j0 + nc); ++j) {
    REAL sum = 0;
    for (int share = 0; share < splits; ++share) sum += shares[(get_global_id(2) * splits + share) * J + j];
    STORE_SUM(j, sum);
  }
}
#endif
