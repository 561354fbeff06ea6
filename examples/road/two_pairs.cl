/* A solution of exercise 3 of docs/road/09_double_buffer.md: `tiled` with two pairs of tiles, and one barrier a step.
 *
 * `pyclmm road two_pairs.cl` checks it, and times it beside its neighbours.
 */
#include "include/gemm.h"

__kernel WORK_GROUP(TW, TW, 1) void matmul_tiled(GEMM_ARGS)
{
  __local ACC_T tile_a[2][TW][TW + 1], tile_b[2][TW][TW + 1];
  GEMM_BEGIN;
  const int lj = get_local_id(0), li = get_local_id(1);
  const int j = get_global_id(0), i = get_global_id(1);

  ACC_T acc = ACC_ZERO;
  for (int t = -TW, now = 1; t < K; t += TW, now = 1 - now) { /* the first turn only loads */
    barrier(CLK_LOCAL_MEM_FENCE);
    tile_a[1 - now][li][lj] = GUARDED_A(a, i, t + TW + lj, lda, M, K);
    tile_b[1 - now][li][lj] = GUARDED_B(b, t + TW + li, j, ldb, K, N);
    if (t >= 0)
      for (int k = 0; k < TW; ++k) acc = MAC(acc, tile_a[now][li][k], tile_b[now][k][lj]);
  }
  STORE_RESULT(i, j, acc, RESULT);
}
