/* The sums that small.cl keeps in registers, in one of four ways. Each element of A and B is loaded where it is used.
 *
 *   ACROSS > 1         ACROSS dot products, side by side in memory, by vectors along the stack (dots_across.h)
 *   VEC_N 1            TM rows of A with LANES columns of B, whose rows are vectors
 *   TM x TN, more      TM rows of A with TN columns of B, numbers one by one
 *   TM x TN = 1        CHAINS sums: a sum alone would wait for each addition to end. They are those of CHAINS products;
 *                      with IN_K 1 of every CHAINS-th k of one product, which are then added
 *
 * Macros: TM, TN, ACROSS, LANES, IN_K of small.cl; those of gemm.h, and with LANES > 1 of vectors.h.
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
#define CHAINS (LANES == 1 && TM * TN == 1 ? 4 : 1) /* Zen 5: as fast as 8 */
#define PLACES (IN_K ? 1 : CHAINS)
#define TOGETHER (ACROSS * PLACES)
#define FOR_TILE(i, j) UNROLL for (int i = 0; i < TM; ++i) UNROLL for (int j = 0; j < TN; ++j)
#define FOR_CHAINS(v) UNROLL for (int v = 0; v < CHAINS; ++v)

/* sums = rows i0.. of A times columns j0.. of B, over k0 <= k < k1, for products together. Where compilers must keep sums
 * in registers they are not in `sums`, which the caller reads in a loop. */
INLINE void tile(
    ACC_T sums[TM][TN][TOGETHER], __global const A_T *const a[PLACES], const long lda,
    __global const B_T *const b[PLACES], const long ldb, const int i0, const int j0, const int M, const int N,
    const int k0, const int k1)
{
#if ACROSS > 1
  dots_across(
      sums[0][0], a[0] + A_INDEX(0, k0, lda), A_INDEX(0, 1, lda), b[0] + B_INDEX(k0, 0, ldb), B_INDEX(1, 0, ldb), k1 - k0);
#elif VEC_N
  VEC acc[TM];
  __global const A_T *rows[TM];
  UNROLL for (int i = 0; i < TM; ++i) {
    acc[i] = (VEC)(0);
    rows[i] = a[0] + A_INDEX(min(i0 + i, M - 1), 0, lda);
  }
  for (int k = k0; k < k1; ++k) {
    const VEC y = VEC_B(b[0] + B_INDEX(k, j0, ldb));
    UNROLL for (int i = 0; i < TM; ++i) acc[i] = FMA_VEC((VEC)(LOAD_A(rows[i], A_INDEX(0, k, lda))), y, acc[i]);
  }
  UNROLL for (int i = 0; i < TM; ++i) *(LOOSE_VEC *)sums[i][0] = acc[i];
#else
  ACC_T acc[TM][TN][CHAINS];
  FOR_TILE(i, j) FOR_CHAINS(v) acc[i][j][v] = ACC_ZERO;
  __global const A_T *rows[TM][PLACES];
  __global const B_T *columns[TN][PLACES];
  UNROLL for (int v = 0; v < PLACES; ++v) {
    UNROLL for (int i = 0; i < TM; ++i) rows[i][v] = a[v] + A_INDEX(min(i0 + i, M - 1), 0, lda);
    UNROLL for (int j = 0; j < TN; ++j) columns[j][v] = b[v] + B_INDEX(0, min(j0 + j, N - 1), ldb);
  }
#define STEP (CHAINS / PLACES) /* of k: 1, or with IN_K 1 CHAINS */
#define K_OF(v) (k + (v) / PLACES)
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
