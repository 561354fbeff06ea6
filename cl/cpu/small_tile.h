/* The sums that small.cl keeps in registers, in one of four ways. Each element of A and B is loaded where it is used.
 *
 *   ACROSS > 1         ACROSS dot products, near in memory, by vectors along the stack (dots_across.h)
 *   VEC_N 1            TM rows of A with TN columns of B, whose rows are vectors: the last one overlaps the one before, and
 *                      one wider than TN goes on into the next row, whose sums are left out
 *   TM x TN, more      TM rows of A with TN columns of B, numbers one by one
 *   TM x TN = 1        one sum
 *
 * Few sums would wait for each addition to end. With IN_K 1 each is CHAINS sums, of every CHAINS-th k, which are then added.
 * With IN_K 0 a lone sum is that of CHAINS products, side by side.
 *
 * Macros: TM, TN, ACROSS, LANES, CHAINS, IN_K of small.cl; those of gemm.h, and with LANES > 1 of vectors.h.
 * Defines TOGETHER, the products whose sums tile() computes, and PLACES, of how many it takes the pointers.
 */
#include "include/gemm.h"
#if LANES > 1
#include "cpu/vectors.h"
#include "cpu/vector_loads.h"
#endif
#if ACROSS > 1
#include "cpu/dots_across.h"
#endif

#define VEC_N (LANES > 1 && ACROSS == 1)
#define VECS ((TN + LANES - 1) / LANES)
#define COLUMN_OF(w) ((w) == 0 || (w) < VECS - 1 ? (w) * LANES : TN - LANES) /* where vector w of a row begins */
#define PLACES (IN_K ? 1 : CHAINS)
#define TOGETHER (ACROSS * PLACES)
#define FOR_TILE(i, j) UNROLL for (int i = 0; i < TM; ++i) UNROLL for (int j = 0; j < TN; ++j)
#define FOR_CHAINS(v) UNROLL for (int v = 0; v < CHAINS; ++v)
#define FOR_VEC_TILE(i, w) UNROLL for (int i = 0; i < TM; ++i) UNROLL for (int w = 0; w < VECS; ++w)
#define STEP (CHAINS / PLACES) /* of k: 1, or with IN_K 1 CHAINS */
#define K_OF(v) (k + (v) / PLACES)

#if VEC_N
/* Chain v of each sum += step k of its products. *is_last*: no row of B lies behind it. */
INLINE void add_row(
    VEC acc[TM][VECS][CHAINS], const int v, __global const A_T *const rows[TM], const long lda, __global const B_T *b,
    const long ldb, const int j0, const int k, const int is_last)
{
  VEC y[VECS];
  if (TN < LANES && is_last) {
    y[0] = (VEC)(0);
    UNROLL for (int j = 0; j < TN; ++j) ((REAL *)y)[j] = LOAD_B(b, B_INDEX(k, j0 + j, ldb));
  } else
    UNROLL for (int w = 0; w < VECS; ++w) y[w] = VEC_B(b + B_INDEX(k, j0 + COLUMN_OF(w), ldb));
  UNROLL for (int i = 0; i < TM; ++i) {
    const VEC x = (VEC)(LOAD_A(rows[i], A_INDEX(0, k, lda)));
    UNROLL for (int w = 0; w < VECS; ++w) acc[i][w][v] = FMA_VEC(x, y[w], acc[i][w][v]);
  }
}
#endif

/* sums = rows i0.. of A times columns j0.. of B, over k0 <= k < k1, for products together, which with ACROSS > 1 are near_a
 * and near_b elements apart. Where compilers must keep sums
 * in registers they are not in `sums`, which the caller reads in a loop. */
INLINE void tile(
    ACC_T sums[TM][TN][TOGETHER], __global const A_T *const a[PLACES], const long lda, const long near_a,
    __global const B_T *const b[PLACES], const long ldb, const long near_b, const int i0, const int j0, const int M,
    const int N, const int k0, const int k1)
{
#if ACROSS > 1
  dots_across(
      sums[0][0], a[0] + A_INDEX(0, k0, lda), A_INDEX(0, 1, lda), near_a, b[0] + B_INDEX(k0, 0, ldb), B_INDEX(1, 0, ldb),
      near_b, k1 - k0);
#elif VEC_N
  VEC acc[TM][VECS][CHAINS];
  __global const A_T *rows[TM];
  UNROLL for (int i = 0; i < TM; ++i) rows[i] = a[0] + A_INDEX(min(i0 + i, M - 1), 0, lda);
  FOR_VEC_TILE(i, w) FOR_CHAINS(v) acc[i][w][v] = (VEC)(0);
  int k = k0;
  for (; k <= k1 - STEP - (TN < LANES); k += STEP) FOR_CHAINS(v) add_row(acc, v, rows, lda, b[0], ldb, j0, K_OF(v), 0);
  for (; k < k1; ++k) add_row(acc, 0, rows, lda, b[0], ldb, j0, k, k == k1 - 1);
  FOR_VEC_TILE(i, w) {
    UNROLL for (int v = 1; v < CHAINS; ++v) acc[i][w][0] += acc[i][w][v];
#if TN < LANES
    UNROLL for (int j = 0; j < TN; ++j) sums[i][j][0] = ((const REAL *)acc[i][0])[j];
#else
    *(LOOSE_VEC *)(sums[i] + COLUMN_OF(w)) = acc[i][w][0];
#endif
  }
#else
  ACC_T acc[TM][TN][CHAINS];
  FOR_TILE(i, j) FOR_CHAINS(v) acc[i][j][v] = ACC_ZERO;
  __global const A_T *rows[TM][PLACES];
  __global const B_T *columns[TN][PLACES];
  UNROLL for (int v = 0; v < PLACES; ++v) {
    UNROLL for (int i = 0; i < TM; ++i) rows[i][v] = a[v] + A_INDEX(min(i0 + i, M - 1), 0, lda);
    UNROLL for (int j = 0; j < TN; ++j) columns[j][v] = b[v] + B_INDEX(0, min(j0 + j, N - 1), ldb);
  }
  int k = k0;
  BY_NUMBERS for (; k <= k1 - STEP; k += STEP) {
    ACC_T y[TN][CHAINS];
    UNROLL for (int j = 0; j < TN; ++j)
      FOR_CHAINS(v) y[j][v] = LOAD_B(columns[j][v % PLACES], B_INDEX(K_OF(v), 0, ldb));
    UNROLL for (int i = 0; i < TM; ++i) {
      ACC_T x[CHAINS];
      FOR_CHAINS(v) x[v] = LOAD_A(rows[i][v % PLACES], A_INDEX(0, K_OF(v), lda));
      UNROLL for (int j = 0; j < TN; ++j) FOR_CHAINS(v) acc[i][j][v] = MAC(acc[i][j][v], x[v], y[j][v]);
    }
  }
  FOR_TILE(i, j) UNROLL for (int v = 0; v < PLACES; ++v) {
    ACC_T sum = acc[i][j][v];
    UNROLL for (int w = v + PLACES; w < CHAINS; w += PLACES) sum = ADD(sum, acc[i][j][w]);
    BY_NUMBERS for (int rest = k; STEP > 1 && rest < k1; ++rest)
      sum = MAC(sum, LOAD_A(rows[i][v], A_INDEX(0, rest, lda)), LOAD_B(columns[j][v], B_INDEX(rest, 0, ldb)));
    sums[i][j][v] = sum;
  }
#endif
}
