/* thin_walk: out(q, x) = sum_k Y(q, k) X(k, x) with x the contiguous axis of X.
 *
 *            x0    LANES * VEC
 *          +------+---------+      Each work-item has VEC neighbouring columns of X in one slice of K:
 *     X    |      |s0 s0 s0 |      work-item (lane, slice) reads rows slice, slice + SLICES, ..., with AHEAD
 *          |      |s1 s1 s1 |      in flight. The slices are added through local memory at the end.
 *          |      |s0 s0 s0 |
 *          +------+---------+
 *
 * Macros: LANES, SLICES (a power of two), AHEAD; those of thin.h. A work-group has ITEMS = LANES * SLICES
 * work-items.
 * Work-group (tile, range): columns from tile * LANES * VEC, K from range * k_range.
 */
#include "gpu/thin.h"

#if !defined(LANES) || !defined(SLICES) || !defined(AHEAD)
#error "thin_walk.cl needs LANES SLICES AHEAD"
#endif
#define ITEMS (LANES * SLICES)
#define TILE_X (LANES * VEC)

/* acc += one access to a row of X times the same k of Y. Adds nothing if the row is not `there`. */
INLINE void multiply_access(
    ACC_T (*acc)[VEC], const access_t access, __global const Y_T *y, const long step_q, const int rows,
    const bool there)
{
  ACC_T x[VEC];
  SPREAD_X(x, there ? access : (access_t)(0));
  UNROLL for (int q = 0; q < Q; ++q) {
    const ACC_T loaded = LOAD_Y(y, min(q, rows - 1) * step_q);
    const ACC_T value = there ? loaded : ACC_ZERO;
    UNROLL for (int e = 0; e < VEC; ++e) acc[q][e] = MAC_XY(acc[q][e], x[e], value);
  }
}

/* Row k of X or Y, or the last row if k is beyond it. */
#define ROW(base, k, k_end, step) ((base) + min(k, (k_end) - 1) * (step))

__kernel WORK_GROUP(ITEMS, 1, 1) void thin_walk(GEMM_ARGS, const int k_range, __global ACC_T *partial)
{
  __local ACC_T scratch[ITEMS * VEC];
  GEMM_BEGIN;
  const int lane = get_local_id(0) % LANES, slice = get_local_id(0) / LANES;
  const int x0 = get_group_id(0) * TILE_X;
  const int x = x0 + lane * VEC;
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0;
  const int k_end = SPLIT ? min(K, k0 + k_range) : K;
  const int rows = THIN(M, N);
  const long step_k = BIG(lda, ldb);
  const long y_step_k = THIN(TRANS_A ? lda : 1, TRANS_B ? 1 : ldb), step_q = THIN(TRANS_A ? 1 : lda, TRANS_B ? ldb : 1);
  __global const X_T *column = BIG(a, b) + min(x, BIG(M, N) - VEC);
  __global const Y_T *y = THIN(a, b);

  ACC_T acc[Q][VEC];
  UNROLL for (int q = 0; q < Q; ++q) UNROLL for (int e = 0; e < VEC; ++e) acc[q][e] = ACC_ZERO;
  if (k0 < k_end) {
    int k = k0 + slice;
    access_t ahead[AHEAD];
    UNROLL for (int u = 0; u < AHEAD; ++u) ahead[u] = FETCH_X(ROW(column, k + u * SLICES, k_end, step_k));
    for (; k + (AHEAD - 1) * SLICES < k_end; k += AHEAD * SLICES) {
      UNROLL for (int u = 0; u < AHEAD; ++u) {
        const access_t access = ahead[u];
        ahead[u] = FETCH_X(ROW(column, k + (AHEAD + u) * SLICES, k_end, step_k));
        multiply_access(acc, access, y + (k + u * SLICES) * y_step_k, step_q, rows, true);
      }
    }
    UNROLL for (int u = 0; u < AHEAD; ++u)
      multiply_access(acc, ahead[u], ROW(y, k + u * SLICES, k_end, y_step_k), step_q, rows, k + u * SLICES < k_end);
  }
  UNROLL for (int q = 0; q < Q; ++q) {
    sum_over_items(acc[q], VEC, scratch, ITEMS, slice, SLICES, LANES);
    if (slice == 0 && q < rows)
      UNROLL for (int e = 0; e < VEC; ++e) store_sum(q, x + e, x0, TILE_X, acc[q][e], partial, RESULT);
  }
}
