/* wgmma_ragged: rows or K divided among products, on the matrix units of sm_90a. As wgmma.cl, whose sketch and macros hold,
 * but pieces are those of a table (listed.h), of which there may be fewer than work-groups.
 *
 * LISTED 1: rows of A and of out are divided; product p multiplies layer p of B, and its rows end where the next ones begin.
 * LISTED 2: K is divided. The last stage of a product also has k of the next one: zeros replace them.
 *
 * Macros: LISTED 1, 2; SPLIT_K 0; SWAPPED 0; CLUSTER 1; with LISTED 2 ACROSS_A ACROSS_B 1 and BN 64 or more; those of wgmma.cl.
 */
#include "include/gemm.h"
#include "nvidia/wgmma_quartet.h"

#if !LISTED || SPLIT_K || SWAPPED || CLUSTER > 1
#error "wgmma_ragged.cl: see its macros"
#endif

#if LISTED == 2
#if !ACROSS_A || !ACROSS_B || BN < 64
#error "wgmma_ragged.cl divides K of operands that are stored across K, in boxes of 128 bytes"
#endif
#define BOXES ((BM + BN) / 64) /* of a stage; a box has a line of 128 bytes for each k */

/* Makes zeros of all but `depth` elements of K of the stage at `ring`. Each quartet that reads it does. */
INLINE void clear_rest(const int quartet, const stages_t stages, const ring_t ring, const int depth)
{
  if (depth >= BLOCK_K) return;
  wait_until_full(stages, ring);
  const int rest = (BLOCK_K - depth) * 128; /* bytes of each box */
  for (int box = 0; box < BOXES; ++box)
    for (int at = get_local_id(0) % 128 * 8; at < rest; at += 128 * 8)
      leave_pair(stages.tiles + ring.stage * BLOCK_BYTES + box * ROWS_64 + depth * 128 + at, (uint2)(0));
  stores_fence();
  meet(8 + quartet, QUARTET);
}
#else
#define clear_rest(quartet, stages, ring, depth) ((void)0)
#endif

/* A quartet's part of all pieces of this work-group. */
INLINE void multiply(
    const int quartet, const work_t work, const stages_t stages, RESULT_ARGS)
{
  /* --- Prologue --- */
  const int part = ALTERNATE ? 0 : quartet - 1;
  const int pieces = pieces_of(work), groups = get_num_groups(0);
  const uint rows = place_of_rows(part);
  ring_t ring = {0, 0};
  bool mine = !ALTERNATE || quartet == 2;
  uint left[4][4 * FRAGMENTS]; /* used only with LEFT_REGISTERS */
  for (int number = get_group_id(0); number < pieces; number += groups) {
    const piece_t piece = piece_at(number, work);
    if (ALTERNATE) mine = !mine;
    if (!mine) { /* the other quartet's */
      ring = advanced(ring, piece.end - piece.first);
      continue;
    }
    wgmma_acc acc[ACCS];
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;
    if (ALTERNATE && number != (int)get_group_id(0)) meet(turn_of(quartet), TWO_QUARTETS);

    /* --- Main loop --- */
    int last = -1;
    for (int step = piece.first; step < piece.end; ++step) {
      if (step + 1 == piece.end) clear_rest(quartet, stages, ring, piece.depth - step * BLOCK_K);
      multiply_stage(acc, left, rows, stages, ring, last);
      last = ring.stage;
      ring = advanced(ring, 1);
    }
    if (ALTERNATE && number + groups < pieces) announce(turn_of(3 - quartet), TWO_QUARTETS);
    UNROLL for (int f = 0; f < FRAGMENTS; ++f) wgmma_wait(acc + f * WGMMA_ACC);
    if (last >= 0) release(stages, last);

    /* --- Epilogue: to rows of the product, or to its result --- */
    store_product(
        acc, piece, part, stages, 0, piece.rows, N, out + piece.out, ldo, c, c_rs, c_cs, bias, bias_stride, alpha, beta);
  }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma(
    GEMM_ARGS, OPERAND_STRIDES, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int split_k,
    const int stack)
{
  __local uchar tiles[STAGES * BLOCK_BYTES + LINES_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] ALIGNED(128);

  /* --- Operands --- */
  LISTED_OF_ALL;
  const long z = BATCH_ENTRY;
  const int quartet = get_local_id(0) / 128;
  const work_t work = listed_work(work_of(M, N, K, BLOCK_K, 1, whole, split_k), BLOCK_K, tiles_listed, products);
  if ((int)get_group_id(0) >= pieces_of(work)) return;
  const stages_t stages = stages_in(tiles, bars);
  const int sub_group = first_ones(get_local_id(0) / 32);
  const feeder_t feeder =
      feeder_of(sub_group, slot_of(maps, sub_group / 2), work, scratch, z, stack, SWAPPED, OPERANDS);

  /* --- Barriers --- */
  if (get_local_id(0) == WORK_ITEMS - 1) begin_stages(stages, 2, 4 * OWNERS);
  barrier(CLK_LOCAL_MEM_FENCE);
  out += out_offset;
  EXTRAS_BEGIN(0, 0);

  /* --- Copies by quartet 0, products by the others --- */
  if (quartet == 0) {
    feed(feeder, work, stages);
    return;
  }
  multiply(quartet, work, stages, RESULT);
}
