/* A solution of exercise 3 of docs/road/05_tiled.md: tiles that are twice as long along K have half as many barriers.
 *
 * `pyclmm road long_tiles.cl` checks it, and times it beside its neighbours.
 */
#include "include/gemm.h"

__kernel WORK_GROUP(TW, TW, 1) void matmul_tiled(GEMM_ARGS)
{
  __local ACC_T tile_a[TW][2 * TW + 1], tile_b[2 * TW][TW + 1];
  GEMM_BEGIN;
  const int lj = get_local_id(0), li = get_local_id(1);
  const int j = get_global_id(0), i = get_global_id(1);

  ACC_T acc = ACC_ZERO;
  for (int t = 0; t < K; t += 2 * TW) {
    for (int part = 0; part < 2 * TW; part += TW) {
      tile_a[li][part + lj] = GUARDED_A(a, i, t + part + lj, lda, M, K);
      tile_b[part + li][lj] = GUARDED_B(b, t + part + li, j, ldb, K, N);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 2 * TW; ++k) acc = MAC(acc, tile_a[li][k], tile_b[k][lj]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  STORE_RESULT(i, j, acc, RESULT);
}
