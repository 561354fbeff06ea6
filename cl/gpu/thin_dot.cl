/* thin_dot: out(q, x) = sum_k Y(q, k) X(k, x) with k the contiguous axis of X.
 *
 *            k    LANES * VEC
 *          +---------+------+      LANES work-items together read LINES x of X along k, VEC elements at a
 *     X    |l0 l0 l0 |l0    | x    time. For each x, their LANES sums are added through local memory at the
 *          |l1 l1 l1 |l1    |      end.
 *          +---------+------+
 *
 * Macros: LANES (a power of two), LINES, the x of a work-item, TEAMS, teams of LANES work-items in a work-group;
 * those of thin.h.
 * Work-group (tile, range): x from tile * TEAMS * LINES, K from range * k_range, a multiple of VEC.
 */
#include "gpu/thin.h"

#if !defined(LANES) || !defined(LINES) || !defined(TEAMS)
#error "thin_dot.cl needs LANES LINES TEAMS"
#endif
#define ITEMS (LANES * TEAMS)
#define TILE_X (TEAMS * LINES)

__kernel WORK_GROUP(ITEMS, 1, 1) void thin_dot(GEMM_ARGS, const int k_range, __global ACC_T *partial)
{
  __local ACC_T scratch[ITEMS * LINES];
  GEMM_BEGIN;
  const int lane = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
  const int x0 = get_group_id(0) * TILE_X;
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0;
  const int k_end = SPLIT ? min(K, k0 + k_range) : K;
  const int extent = BIG(M, N), rows = THIN(M, N);
  __global const X_T *big = BIG(a, b);
  __global const Y_T *y = THIN(a, b);
  const long step_x = BIG(lda, ldb);
  const long y_step_k = THIN(TRANS_A ? lda : 1, TRANS_B ? 1 : ldb), step_q = THIN(TRANS_A ? 1 : lda, TRANS_B ? ldb : 1);

  ACC_T acc[Q][LINES];
  UNROLL for (int q = 0; q < Q; ++q) UNROLL for (int l = 0; l < LINES; ++l) acc[q][l] = ACC_ZERO;
  for (int k = k0 + lane * VEC; k < k_end; k += LANES * VEC) {
    access_t lines[LINES];
    UNROLL for (int l = 0; l < LINES; ++l)
      lines[l] = FETCH_X(big + min(x0 + l * TEAMS + team, extent - 1) * step_x + k);
    ACC_T x[LINES][VEC];
    UNROLL for (int l = 0; l < LINES; ++l) SPREAD_X(x[l], lines[l]);
    UNROLL for (int q = 0; q < Q; ++q) {
      UNROLL for (int e = 0; e < VEC; ++e) {
        const ACC_T value = LOAD_Y(y, min(q, rows - 1) * step_q + (k + e) * y_step_k);
        UNROLL for (int l = 0; l < LINES; ++l) acc[q][l] = MAC_XY(acc[q][l], x[l][e], value);
      }
    }
  }
  UNROLL for (int q = 0; q < Q; ++q) {
    sum_over_items(acc[q], LINES, scratch, ITEMS, lane, LANES, 1);
    if (lane == 0 && q < rows)
      UNROLL for (int l = 0; l < LINES; ++l)
        store_sum(q, x0 + l * TEAMS + team, x0, TILE_X, acc[q][l], partial, RESULT);
  }
}
