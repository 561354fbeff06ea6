/* strip: out = A B through tiles in local memory, TM elements of one column for each work-item.
 *
 *              j0  BN                     work-item (lj, li) of work-group (j0, i0):
 *            +----+--+                      out(i0 + li TM + m, j0 + lj),  m = 0 .. TM - 1
 *            | B  |##| t
 *            +----+--+                    for each k of a tile:
 *     t                                     y = tile_b(k, lj)                 one read, used TM times
 *   +--+--+  +----+--+                      acc[m] += tile_a(li TM + m, k) y  for all m
 *   |##|A |  |out |x | i0
 *   |  |  |  |    |x | TM
 *   +--+--+  +----+--+
 *
 * One multiply-add reads 1 + 1/TM elements of local memory; in `tiled` it reads 2.
 *
 * Macros: those of tiles.h, with TN = 1.
 * Technique: several elements a work-item in one dimension (thread coarsening).
 */
#include "textbook/tiles.h"

__kernel WORK_GROUP(ITEMS_X, ITEMS_Y, 1) void matmul_strip(GEMM_ARGS)
{
  __local row_of_a tile_a[BM];
  __local row_of_b tile_b[BK];
  GEMM_BEGIN;
  const int lj = get_local_id(0);
  const int li = get_local_id(1) * TM;
  const int id = get_local_id(1) * ITEMS_X + lj;
  const int j0 = get_group_id(0) * BN;
  const int i0 = get_group_id(1) * BM;

  ACC_T acc[TM];
  for (int m = 0; m < TM; ++m) acc[m] = ACC_ZERO;
  for (int t = 0; t < K; t += BK) {
    load_tile_a(tile_a, a, lda, M, K, i0, t, id);
    load_tile_b(tile_b, b, ldb, K, N, t, j0, id);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < BK; ++k) {
      const ACC_T y = tile_b[k][lj];
      for (int m = 0; m < TM; ++m) acc[m] = MAC(acc[m], tile_a[li + m][k], y);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int m = 0; m < TM; ++m) STORE_RESULT(i0 + li + m, j0 + lj, acc[m], RESULT);
}
