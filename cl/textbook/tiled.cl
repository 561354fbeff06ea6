/* tiled: out = A B through TW x TW tiles in local memory, one element for each work-item.
 *
 *              j0  TW                     for t = 0, TW, 2 TW, ... < K:
 *            +----+--+                      load     tile_a = A(i0.., t..), tile_b = B(t.., j0..)
 *            | B  |##| t                    barrier  the tiles are complete
 *            +----+--+                      multiply acc += tile_a(i, :) tile_b(:, j)
 *     t                                     barrier  no work-item reads the tiles any more
 *   +--+--+  +----+--+
 *   |##|A |  |out |xx| i0                 work-item (lj, li) of work-group (j0, i0)
 *   +--+--+  +----+--+
 *
 * Each element of A is read N/TW times instead of N times, each of B M/TW times instead of M times. Where a tile
 * reaches beyond the matrix it is filled with zeros, which add nothing.
 *
 * Macros: TW, the tile width: any number >= 1 for which the device allows TW x TW work-items in a work-group;
 * those of types.h and gemm.h. Work-groups must be TW x TW.
 * Technique: blocking for a fast memory; in OpenCL, the local-memory product of NVIDIA's and Intel's
 * introductory samples.
 */
#include "include/gemm.h"

#ifndef TW
#error "tiled.cl needs TW, the tile width"
#endif

/* One column of padding keeps column accesses free of bank conflicts. */
typedef ACC_T tile_row[TW + 1];

/* Work-item (x, y) of the work-group loads one element of each tile. In every layout, x runs along the
 * operand's contiguous axis. */
INLINE void load_tile_a(
    __local tile_row *tile, __global const A_T *a, const long lda, const int M, const int K, const int i0,
    const int t, const int x, const int y)
{
  const int row = TRANS_A ? x : y;
  const int col = TRANS_A ? y : x;
  tile[row][col] = GUARDED_A(a, i0 + row, t + col, lda, M, K);
}

INLINE void load_tile_b(
    __local tile_row *tile, __global const B_T *b, const long ldb, const int K, const int N, const int t,
    const int j0, const int x, const int y)
{
  const int row = TRANS_B ? x : y;
  const int col = TRANS_B ? y : x;
  tile[row][col] = GUARDED_B(b, t + row, j0 + col, ldb, K, N);
}

INLINE ACC_T multiply_tiles(
    __local const tile_row *tile_a, __local const tile_row *tile_b, ACC_T acc, const int li, const int lj)
{
  for (int k = 0; k < TW; ++k) acc = MAC(acc, tile_a[li][k], tile_b[k][lj]);
  return acc;
}

__kernel WORK_GROUP(TW, TW, 1) void matmul_tiled(GEMM_ARGS)
{
  __local tile_row tile_a[TW];
  __local tile_row tile_b[TW];
  GEMM_BEGIN;
  const int lj = get_local_id(0);
  const int li = get_local_id(1);
  const int j0 = get_group_id(0) * TW;
  const int i0 = get_group_id(1) * TW;

  ACC_T acc = ACC_ZERO;
  for (int t = 0; t < K; t += TW) {
    load_tile_a(tile_a, a, lda, M, K, i0, t, lj, li);
    load_tile_b(tile_b, b, ldb, K, N, t, j0, lj, li);
    barrier(CLK_LOCAL_MEM_FENCE);
    acc = multiply_tiles(tile_a, tile_b, acc, li, lj);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  STORE_RESULT(i0 + li, j0 + lj, acc, RESULT);
}
