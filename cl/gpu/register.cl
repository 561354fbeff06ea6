/* register: out = A B with tiles at three levels: local memory, sub-groups, registers.
 *
 *                  BN
 *            +---+-------+
 *            | B |   #   | BK
 *            +---+-------+
 *       BK                                A work-group computes BM x BN, each of its sub-groups SGM x SGN, each
 *    +-----+ +---+-------+                work-item TM x TN (register_tile.h), in steps of BK (register_loop.h)
 *    | A   | |   |  out  |
 * BM |  #  | |   |   x   |
 *    +-----+ +---+-------+
 *
 * A work-group reads 2 BM BN / (BM + BN) times fewer elements of A and B than a naive kernel. A work-item reads
 * TM TN / (TM + TN) times fewer elements of local memory.
 *
 * Macros: those of register_loop.h and tile_order.h, and
 *   SPLIT    0: the kernel stores out. 1: split-K in ranges of k_range, one for each work-group in dimension 1 of the
 *            NDRange. Partial sums go to `partial`, range after range of a tile, and split_k.cl adds them
 * Dimension 0 of the NDRange has WORK_ITEMS for each tile; the first tile is number `first_tile`. k_range is a
 * multiple of BK. register_rows.cl is the alternative for small products.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "include/tile_order.h"
#include "gpu/register_loop.h"

#ifndef SPLIT
#error "register.cl needs SPLIT"
#endif

#if KS > 1
/* Adds the sums of all slices to those of slice 0, one column at a time through local memory. */
INLINE void sum_slices(ACC_T (*acc)[TN], __local ACC_T *scratch, const Place p)
{
  UNROLL for (int c = 0; c < TN; ++c) {
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < TM; ++r)
      if (p.slice) scratch[((p.slice - 1) * TM + r) * SLICE_ITEMS + p.item] = acc[r][c];
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < TM; ++r)
      for (int other = 0; other < KS - 1; ++other)
        if (!p.slice) acc[r][c] = acc[r][c] + scratch[(other * TM + r) * SLICE_ITEMS + p.item];
  }
}
#endif

#if VECTORS
#define GROUP_ITEMS WORK_GROUP(SG_COLS, WORK_ITEMS / SG_COLS, 1)
#else
#define GROUP_ITEMS WORK_GROUP(WORK_ITEMS, 1, 1)
#endif

__kernel GROUP_ITEMS void matmul_register(
    GEMM_ARGS, const int first_tile, const int k_range, __global ACC_T *partial)
{
  __local ACC_T tiles[STAGES * STAGE] ALIGNED(16);
  GEMM_BEGIN;
  Place p;
  find_place(&p, WORK_ITEM);
#if LISTED
  const int i0 = tile_listed.y, j0 = tile_listed.z;
#else
  const int2 tile = tile_at(first_tile + get_group_id(0), (M + BM - 1) / BM, (N + BN - 1) / BN);
  const int i0 = tile.x * BM, j0 = tile.y * BN;
#endif
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0;
  const int depth = SPLIT ? min(K - k0, k_range) : K;

  Stream stream;
  begin_walk(&stream.a, (__global const uchar *)(a + A_INDEX(i0, k0, lda)), sizeof(A_T), lda, M - i0, depth,
             BM, LINE_A, VEC_A, !TRANS_A, ALONG_A, WORK_ITEM);
  begin_walk(&stream.b, (__global const uchar *)(b + B_INDEX(k0, j0, ldb)), sizeof(B_T), ldb, N - j0, depth,
             BN, LINE_B, VEC_B, TRANS_B, ALONG_B, WORK_ITEM);
  ACC_T acc[TM][TN];
  UNROLL for (int r = 0; r < TM; ++r) UNROLL for (int t = 0; t < TN; ++t) acc[r][t] = ACC_ZERO;
  accumulate(acc, &stream, tiles, p, depth);
#if KS > 1
  DRAIN;
  sum_slices(acc, tiles, p);
  if (p.slice) return;
#endif
#if SPLIT
  partial += partial_of_work_group(BM * BN);
#endif
  UNROLL for (int r = 0; r < TM; ++r) {
    UNROLL for (int t = 0; t < TN; ++t) {
#if SPLIT
      partial[ROW_OF(p, r) * BN + COL_OF(p, t)] = acc[r][t];
#else
      STORE_RESULT(i0 + ROW_OF(p, r), j0 + COL_OF(p, t), acc[r][t], RESULT);
#endif
    }
  }
}
