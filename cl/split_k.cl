/* reduce_shares: the shares of a split K, added in their order, and the epilogue.
 *
 *   out(i, j) = epilogue(partial(tile, 0, r, c) + partial(tile, 1, r, c) + ...)
 *
 * One work-item an element; dimension 0 runs along the columns of tile after tile, dimension 1 along a
 * tile's rows. The order of the sum does not depend on which share was ready first: same bits every time.
 */
#include "include/types.h"
#include "include/gemm.h"
#include "include/tile_order.h"

__kernel void reduce_shares(GEMM_ARGS, const int first_tile, const int shares, __global const ACC_T *partial)
{
  GEMM_BEGIN;
  const int col = get_global_id(0) % BN, row = get_global_id(1), number = get_global_id(0) / BN;
  const long tiles = get_global_size(0) / BN;
  const int2 tile = tile_at(first_tile + number, (M + BM - 1) / BM, (N + BN - 1) / BN);
  const int i = tile.x * BM + row, j = tile.y * BN + col;
  if (i >= M || j >= N) return;
  __global const ACC_T *share = partial + ((BATCH_ENTRY * tiles + number) * shares * BM + row) * BN + col;
  ACC_T sum = share[0];
  for (int s = 1; s < shares; ++s) sum = sum + share[(long)s * BM * BN];
  store_result(i, j, sum, RESULT);
}
