/* double_buffer: `block` with two pairs of tiles: the next pair is loaded while this one is multiplied.
 *
 *   load     tile 0 | tile 1 | tile 2 | tile 3 |          pair 0: tiles 0, 2, 4, ...
 *   multiply        | tile 0 | tile 1 | tile 2 | tile 3   pair 1: tiles 1, 3, 5, ...
 *                   ^        ^        ^        ^          one barrier each: the loads have arrived, and the
 *                                                         pair that is filled next is no longer read
 *
 * `block` has two barriers a step and waits for its loads between them. This kernel has one barrier a step, and the
 * loads and the multiply-adds of a step do not depend on each other.
 *
 * Macros: those of tiles.h. Technique: double buffering.
 */
#include "textbook/block.h"

__kernel WORK_GROUP(ITEMS_X, ITEMS_Y, 1) void matmul_double_buffer(GEMM_ARGS)
{
  __local row_of_a tile_a[2][BM];
  __local row_of_b tile_b[2][BK];
  GEMM_BEGIN;
  const int lj = get_local_id(0);
  const int li = get_local_id(1) * TM;
  const int id = get_local_id(1) * ITEMS_X + lj;
  const int j0 = get_group_id(0) * BN;
  const int i0 = get_group_id(1) * BM;

  ACC_T acc[TM][TN];
  clear_block(acc);
  load_tile_a(tile_a[0], a, lda, M, K, i0, 0, id);
  load_tile_b(tile_b[0], b, ldb, K, N, 0, j0, id);
  for (int t = 0, now = 0; t < K; t += BK, now = 1 - now) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (t + BK < K) {
      load_tile_a(tile_a[1 - now], a, lda, M, K, i0, t + BK, id);
      load_tile_b(tile_b[1 - now], b, ldb, K, N, t + BK, j0, id);
    }
    multiply_tiles(tile_a[now], tile_b[now], acc, li, lj);
  }
  for (int m = 0; m < TM; ++m)
    for (int n = 0; n < TN; ++n) STORE_RESULT(i0 + li + m, j0 + lj + n * ITEMS_X, acc[m][n], RESULT);
}
