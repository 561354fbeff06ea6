/* register: out = A B with tiles at three levels: local memory, sub-groups, registers.
 *
 *                  BN                     fetch    start copying the next tiles to local memory
 *            +---+-------+                multiply for each k of a tile: read TM of A and TN of B into registers,
 *            | B |   #   | BK                      acc(TM x TN) += a(TM) b(TN), while those of the next k are read
 *            +---+-------+                land     wait for the next tile; barrier
 *       BK                                advance  to the next stage
 *    +-----+ +---+-------+
 *    | A   | |   |  out  |                A work-group computes BM x BN, each of its sub-groups SGM x SGN, each
 * BM |  #  | |   |   x   |                work-item TM x TN (register_tile.h)
 *    +-----+ +---+-------+
 *
 * A work-group reads 2 BM BN / (BM + BN) times fewer elements of A and B than a naive kernel. A work-item reads
 * TM TN / (TM + TN) times fewer elements of local memory.
 *
 * Macros: those of register_tile.h, tile_order.h, types.h and gemm.h, and
 *   SPLIT    0: the kernel stores out. 1: split-K in ranges of k_range, one for each work-group in dimension 1 of the
 *            NDRange. Partial sums go to `partial`, range after range of a tile, and split_k.cl adds them
 * The header included before this one copies tiles to local memory (register_held.h, register_nvidia.h). It defines
 *   STAGES                      stages in local memory
 *   FETCH_STEP_A FETCH_STEP_B   the k of a step before which the loads of the next tiles are issued
 *   LEAD Stream DRAIN fetch_a fetch_b land_tile
 * Dimension 0 of the NDRange has WORK_ITEMS for each tile; the first tile is number `first_tile`. k_range is a
 * multiple of BK. Preconditions: BK / KS is even. If VEC_A > 1, A is stored with the accumulator's bits, each row as
 * stored starts on a multiple of 16 bytes, and its length is a multiple of CHUNK. B likewise.
 * Technique: register tiling over software-pipelined local tiles, as in every vendor library. The order of the
 * products (see multiply) is the fastest measured (docs/kernels/register.md).
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/gemm.h"
#include "include/chunk.h"
#include "include/tile_order.h"
#include "gpu/register_tile.h"

#ifndef SPLIT
#error "register.h needs SPLIT"
#endif

/* Reads one k of the tiles into registers. */
INLINE void read_fragments(
    ACC_T *fa, ACC_T *fb, __local const ACC_T *tile_a, __local const ACC_T *tile_b, const int k)
{
  UNROLL for (int r = 0; r < TM; r += CHUNK) {
    const chunk_t v = *(__local const chunk_t *)(tile_a + k * LINE_A + r * SG_ROWS);
    SPREAD(fa + r, v);
  }
  UNROLL for (int c = 0; c < TN; c += CHUNK) {
    const chunk_t v = *(__local const chunk_t *)(tile_b + k * LINE_B + c * SG_COLS);
    SPREAD(fb + c, v);
  }
}

/* acc += fa fb, column by column, down and up in turn. The order decides how many registers an instruction can reuse
 * from the one before: on NVIDIA 50.2 instead of 44.7 TFLOP/s. */
INLINE void multiply(ACC_T (*acc)[TN], const ACC_T *fa, const ACC_T *fb)
{
  UNROLL for (int c = 0; c < TN; ++c) {
    UNROLL for (int i = 0; i < TM; ++i) {
      const int r = c % 2 ? TM - 1 - i : i;
      acc[r][c] = MAC(acc[r][c], fa[r], fb[c]);
    }
  }
}

INLINE int next_stage(const int stage)
{
  return stage + STAGE < STAGES * STAGE ? stage + STAGE : 0;
}

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

/* acc += the products of this work-group's tiles over `depth` of K. */
INLINE void accumulate(
    ACC_T (*acc)[TN], Stream *stream, __local ACC_T *tiles, const Place p, const int depth)
{
  ACC_T fa[2][TM], fb[2][TN];
  for (int stage = 0; stage < LEAD; ++stage) {
    fetch_a(stream, tiles + stage * STAGE);
    fetch_b(stream, tiles + stage * STAGE);
  }
  land_tile(stream, tiles);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int at_a = p.slice * SLICE_K * LINE_A + p.row;
  const int at_b = p.slice * SLICE_K * LINE_B + p.col + BK * LINE_A;
  read_fragments(fa[0], fb[0], tiles + at_a, tiles + at_b, 0);
  int now = 0, filled = LEAD * STAGE; /* the stage that is multiplied, the stage that is filled */
  for (int k = 0; k < depth; k += BK) {
    UNROLL for (int kk = 0; kk < SLICE_K; ++kk) {
      if (kk == FETCH_STEP_A) fetch_a(stream, tiles + filled);
      if (kk == FETCH_STEP_B) fetch_b(stream, tiles + filled);
      if (kk == SLICE_K - 1) {
        now = next_stage(now);
        filled = next_stage(filled);
        land_tile(stream, tiles + now);
        barrier(CLK_LOCAL_MEM_FENCE);
      }
      const int next = (kk + 1) % 2;
      read_fragments(fa[next], fb[next], tiles + now + at_a, tiles + now + at_b, (kk + 1) % SLICE_K);
      multiply(acc, fa[kk % 2], fb[kk % 2]);
    }
  }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_register(
    GEMM_ARGS, const int first_tile, const int k_range, __global ACC_T *partial)
{
  __local ACC_T tiles[STAGES * STAGE] ALIGNED(16);
  GEMM_BEGIN;
  Place p;
  find_place(&p, get_local_id(0));
  const int2 tile = tile_at(first_tile + get_group_id(0), (M + BM - 1) / BM, (N + BN - 1) / BN);
  const int i0 = tile.x * BM, j0 = tile.y * BN;
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0;
  const int depth = SPLIT ? min(K - k0, k_range) : K;

  Stream stream;
  begin_walk(&stream.a, (__global const uchar *)(a + A_INDEX(i0, k0, lda)), sizeof(A_T), lda, M - i0, depth,
             BM, LINE_A, VEC_A, !TRANS_A);
  begin_walk(&stream.b, (__global const uchar *)(b + B_INDEX(k0, j0, ldb)), sizeof(B_T), ldb, N - j0, depth,
             BN, LINE_B, VEC_B, TRANS_B);
  ACC_T acc[TM][TN];
  UNROLL for (int r = 0; r < TM; ++r) UNROLL for (int t = 0; t < TN; ++t) acc[r][t] = ACC_ZERO;
  accumulate(acc, &stream, tiles, p, depth);
#if KS > 1
  DRAIN;
  sum_slices(acc, tiles, p);
  if (p.slice) return;
#endif
#if SPLIT
  const long group = BATCH_ENTRY * get_num_groups(0) + get_group_id(0);
  partial += (group * get_num_groups(1) + get_group_id(1)) * (BM * BN);
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
