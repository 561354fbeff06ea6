/* block: out = A B through tiles in local memory, TM x TN elements in registers for each work-item.
 *
 *              j0  BN                     for each k of a tile:
 *            +----+----+                    x[m] = tile_a(li + m, k)            TM reads
 *            | B  |####| t                  y[n] = tile_b(k, lj + n ITEMS_X)    TN reads
 *            +----+----+                    acc[m][n] += x[m] y[n]              TM TN multiply-adds
 *     t
 *   +--+--+  +----+----+                  TM = 2, TN = 2, ITEMS_X = 2: the x are one work-item's elements
 *   |##|A |  |out |x x | i0
 *   |  |  |  |    |x x |
 *   +--+--+  +----+----+
 *
 * One multiply-add reads 1/TM + 1/TN elements of local memory: 1/2 with TM = TN = 4; in `tiled` it reads 2.
 *
 * Macros: those of tiles.h. Technique: register blocking.
 */
#include "textbook/block.h"

__kernel WORK_GROUP(ITEMS_X, ITEMS_Y, 1) void matmul_block(GEMM_ARGS)
{
  __local row_of_a tile_a[BM];
  __local row_of_b tile_b[BK];
  GEMM_BEGIN;
  const int lj = get_local_id(0);
  const int li = get_local_id(1) * TM;
  const int id = get_local_id(1) * ITEMS_X + lj;
  const int j0 = get_group_id(0) * BN;
  const int i0 = get_group_id(1) * BM;

  ACC_T acc[TM][TN];
  clear_block(acc);
  for (int t = 0; t < K; t += BK) {
    load_tile_a(tile_a, a, lda, M, K, i0, t, id);
    load_tile_b(tile_b, b, ldb, K, N, t, j0, id);
    barrier(CLK_LOCAL_MEM_FENCE);
    multiply_tiles(tile_a, tile_b, acc, li, lj);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int m = 0; m < TM; ++m)
    for (int n = 0; n < TN; ++n) STORE_RESULT(i0 + li + m, j0 + lj + n * ITEMS_X, acc[m][n], RESULT);
}
