/* wgmma: out = A B on the matrix units of sm_90a, from tiles that the copy engine brings.
 *
 *                        BN                quartet 0: feeders start the copies (wgmma_stages.h)
 *                 +--------------+         quartets 1 ..: multiply
 *      K: 128     | B            |
 *      bytes      +--------------+         STAGES blocks of K are in flight
 *     +------+    +--------------+
 *  BM | A    |    | quartet 1    |         ALTERNATE 0: BM / 64 quartets, 64 rows of each tile each
 *     |      |    | quartet 2    |         ALTERNATE 1: two quartets, each computes every other piece;
 *     +------+    +--------------+                      one multiplies while the other stores
 *
 * Work-groups divide the pieces: tiles, or ranges of a tile's K (work_pieces.h). split_k.cl adds the partial sums of
 * ranges. The next piece's copies run while this one is stored. Each feeder of A and of B keeps its tensor map in a slot
 * of `maps`. The products of a stack are layers of the maps. If they do not lie at equal distances, `stack` is 1 and each
 * product has its own work-groups, in dimension 2.
 *
 * DRAIN 1: the results of a tile leave through local memory while the next one is multiplied (wgmma_drain.h).
 *
 * SWAPPED 1: computes out^T = B^T A^T, and `a` is the caller's b. Matrix units read TF32 and bytes from local memory
 * only along K. They also take A from registers, and then A may be stored across K (LEFT_REGISTERS,
 * fragment_rows.h). So the caller's operand that is stored across K becomes A.
 *
 * Macros: BM, a multiple of 64; BN (ptx_wgmma.h); STAGES, 2 or more; BLOCKS 1 (wgmma_stages.h); ALTERNATE SWAPPED SPLIT_K
 * DRAIN 0, 1; GROUP (tile_order.h); OUT_VECTOR (fragment.h); ELEMENT, which is A_TYPE (elements.h); ACROSS_A ACROSS_B 1:
 * the operand is stored across K, 0: along K, after packing.
 * Preconditions: operands and their rows begin on multiples of 16 bytes. With TF32 and bytes B lies along K.
 * Technique: wgmma and tensor maps as in NVIDIA's PTX manual; ALTERNATE 1 is CUTLASS's "ping-pong" schedule.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "nvidia/operands.h"
#include "nvidia/fragment.h"
#include "nvidia/fragment_rows.h"
#include "nvidia/wgmma_multiply.h"
#include "nvidia/wgmma_drain.h"

#define OWNERS (ALTERNATE ? 1 : QUARTETS) /* quartets that divide a tile */
#define WORK_ITEMS (128 * (QUARTETS + 1))

/* ALTERNATE 1: the barrier where a quartet waits until the other one has issued the multiplications of its piece. */
#define TURN_OF(quartet) (4 + (quartet))

/* --- Copies: from global memory to the stages ---------------------------------------------------------------
 *
 * Starts the copies of one operand for all pieces of this work-group. `piece`: the first one.
 *
 * If there is only one row or one column of tiles, the work-groups start at different steps of K. Otherwise all of
 * them would read the same cache lines of the small operand at the same time. */
INLINE void feed(
    const int which, const fed_t operand, const int feeder, const work_t work, piece_t piece, const stages_t stages)
{
  const int pieces = pieces_of(work), groups = get_num_groups(0);
  ring_t ring = {feeder, 0};
  int n = feeder; /* this feeder's next step of the piece */
  for (int number = get_group_id(0);; piece = piece_at(number, work)) {
    const int steps = piece.end - piece.first;
    const int place = piece.origin.s0 / BM + piece.origin.s1 / BN; /* of the tile in the only row or column */
    const bool turned = LISTED != 2 && min(work.tiles_m, work.tiles_n) == 1 && steps; /* clear_rest: the last is last */
    n = feed_piece(which, operand, piece, n, steps, turned ? place % steps : 0, &ring, stages) - steps;
    number += groups;
    if (number >= pieces) return;
  }
}

/* --- Epilogue: from registers to global memory -------------------------------------------------------------- */

/* SWAPPED 1: stores fragments of out^T in out. A fragment's columns are rows of out, and its rows are contiguous
 * there.
 *
 *     work-item 4 g + t, block b of eight columns:   acc[4 b + 2 h + c] is at (i + ROW_STEP h, 8 b + 2 t + c)
 *
 * With LEFT_REGISTERS (fragment_rows.h), the rows of h = 0 and 1 are neighbours and are stored as pairs. With elements
 * of 4 bytes, four work-items then fill a sector of 32 bytes. Otherwise the eight work-items with different g fill it. */
#if SWAPPED
INLINE void store_in_column(const int i, const int j, const sum_t sum, RESULT_ARGS)
{
  if (i < M && j < N) STORE_OUT(out, OUT_AT(i, j, ldo), finished_at(i, j, (ACC_T)sum, RESULT));
}

/* Stores v[0] and v[2], column j of rows i and i + ROW_STEP. */
INLINE void store_column(const int i, const int j, const sum_t *v, RESULT_ARGS)
{
#if LEFT_REGISTERS && PAIRS
  if (i + 1 < M && j < N)
    store_two(out + OUT_AT(i, j, ldo), finished_at(i, j, (ACC_T)v[0], RESULT), finished_at(i + 1, j, (ACC_T)v[2], RESULT));
  else
    store_in_column(i, j, v[0], RESULT);
#else
  store_in_column(i, j, v[0], RESULT);
  store_in_column(i + ROW_STEP, j, v[2], RESULT);
#endif
}

/* Stores all fragments of rows i and i + ROW_STEP: `blocks` blocks from column j on. */
INLINE void store_fragment_columns(const int i, const int j, const sum_t *acc, const int blocks, RESULT_ARGS)
{
  UNROLL for (int b = 0; b < blocks; ++b)
    UNROLL for (int e = 0; e < 2; ++e)
      store_column(i, j + 8 * b + (int)get_local_id(0) % 4 * 2 + e, acc + 4 * b + e, RESULT);
}
#endif

/* Stores a quartet's fragments: with the epilogue or, of a range of K, as partial sums in the order of
 * fragment_rows.h. `part`: which quartet of the tile. */
#define RESULT_TO(rows) rows, N, out, ldo, c, c_rs, c_cs, bias, bias_stride, alpha, beta
INLINE void store_part(
    wgmma_acc *acc, const piece_t piece, const int part, const work_t work, __global wgmma_acc *partial,
    __global const long *batch_offsets, RESULT_ARGS)
{
  if (SPLIT_K && piece.range >= 0) {
    partial += partial_at(piece.tile - work.whole, work.tiles - work.whole, piece.range, work.split_k, BM * BN);
    __global wgmma_acc4 *to = (__global wgmma_acc4 *)(partial + part * (128 * ACCS)) + get_local_id(0) % 128;
    UNROLL for (int i = 0; i < ACCS / 4; ++i)
      to[128 * i] = (wgmma_acc4)(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
    return;
  }
  const long z = BATCH_ENTRY + piece.layer;
  out += BATCH_OFFSET_OF(batch_offsets, z, 3);
  c += BATCH_OFFSET_OF(batch_offsets, z, 2);
  reduce_sums(acc, ACCS, z);
#if LISTED
  const int rows = piece.rows;
  out += piece.out;
#else
  const int rows = M;
#endif
  const int row = piece.origin.s0 + part * 64 + fragment_row(get_local_id(0) % 128);
  UNROLL for (int f = 0; f < FRAGMENTS; ++f) {
#if SWAPPED
    store_fragment_columns(row + 64 * f, piece.origin.s1, acc + f * WGMMA_ACC, BN / 8, RESULT);
#else
    store_fragments(row + 64 * f, ROW_STEP, piece.origin.s1, acc + f * WGMMA_ACC, BN / 8, RESULT_TO(rows));
#endif
  }
}

/* --- Where K is divided among products, the last stage of one also has what others multiply -------------------- */
#if LISTED == 2
#if !ACROSS_A || !ACROSS_B || BN < 64 || BLOCKS != 1
#error "wgmma.cl divides K of operands that are stored across K, in boxes of 128 bytes"
#endif
#define BOXES ((BM + BN) / 64) /* of a stage; a box has a line of 128 bytes for each k */

/* Makes zeros of all but `depth` elements of K of the stage at `ring`. Each quartet that reads it does. */
INLINE void clear_rest(const int quartet, const stages_t stages, const ring_t ring, const int depth)
{
  if (depth >= STAGE_K) return;
  wait_until_full(stages, ring);
  const int rest = (STAGE_K - depth) * 128; /* bytes of each box */
  for (int box = 0; box < BOXES; ++box)
    for (int at = get_local_id(0) % 128 * 8; at < rest; at += 128 * 8)
      leave_pair(stages.tiles + ring.stage * STAGE_BYTES + box * ROWS_64 + depth * 128 + at, (uint2)(0));
  fill_fence();
  quartet_barrier(8 + quartet);
}
#endif

/* --- Main loop of a quartet: its part of all pieces of this work-group -------------------------------------- */

INLINE void multiply(
    const int quartet, const work_t work, const stages_t stages, __global wgmma_acc *partial,
    __global const long *batch_offsets, RESULT_ARGS)
{
  const int pieces = pieces_of(work), part = ALTERNATE ? 0 : quartet - 1, groups = get_num_groups(0);
  const int lane = get_local_id(0) % 32;
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
    /* The sums begin at zero, and the quartet waits for its turn. */
    wgmma_acc acc[ACCS];
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;
    if (ALTERNATE && number != (int)get_group_id(0)) meet(TURN_OF(quartet));

    /* Stage after stage. Each is released when the one behind it has been issued. */
    int last = -1;
    for (int step = piece.first; step < piece.end; ++step) {
#if LISTED == 2
      if (step + 1 == piece.end) clear_rest(quartet, stages, ring, piece.depth - step * STAGE_K);
#endif
      multiply_stage(acc, left, rows, lane, stages, ring, last);
      last = ring.stage;
      ring = advanced(ring, 1);
    }
    if (ALTERNATE && number + groups < pieces) announce(TURN_OF(3 - quartet));

    /* All is issued: it ends, the last stage is free, and the sums are stored. */
    UNROLL for (int f = 0; f < FRAGMENTS; ++f) wgmma_wait(acc + f * WGMMA_ACC);
    if (last >= 0) release(stages, last);
    store_part(acc, piece, part, work, partial, batch_offsets, RESULT);
  }
}

#if DRAIN
/* The same where results leave through local memory. `held`: those of the tile before that are still in registers. */
INLINE void multiply_and_leave(
    const int part, const work_t work, const stages_t stages, __global wgmma_acc *partial,
    __global const long *batch_offsets, RESULT_ARGS)
{
  const int pieces = pieces_of(work), groups = get_num_groups(0), lane = get_local_id(0) % 32;
  const uint rows = place_of_rows(part);
  ring_t ring = {0, 0};
  uint left[4][4 * FRAGMENTS];
  wgmma_acc held[ACCS];
  bool holds = false;
  more_registers();
  for (int number = get_group_id(0); number < pieces; number += groups) {
    const piece_t piece = piece_at(number, work);
    wgmma_acc acc[ACCS];
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;
    int last = -1;
    for (int step = piece.first; step < piece.end; ++step) {
      multiply_stage(acc, left, rows, lane, stages, ring, last);
      last = ring.stage;
      ring = advanced(ring, 1);
      leave_held(stages, part, held, holds ? step - piece.first : -1);
    }
    UNROLL for (int f = 0; f < FRAGMENTS; ++f) wgmma_wait(acc + f * WGMMA_ACC);
    holds = drains(piece, number, work, M, N);
    if (holds) {
      leave_results(stages, last, part, acc, held);
      continue;
    }
    if (last >= 0) release(stages, last);
    store_part(acc, piece, part, work, partial, batch_offsets, RESULT);
  }
}
#endif

/* --- Entry --------------------------------------------------------------------------------------------------- */

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma(
    GEMM_ARGS, OPERAND_STRIDES, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int split_k,
    const int stack)
{
  __local uchar tiles[STAGES * STAGE_BYTES + REST_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] ALIGNED(128);

  /* Work. Of products by modulus fewer may be needed than were expected (moduli.h), and of a list there may be fewer tiles. */
  if (GATE_SHUT) return;
  const long z = BATCH_ENTRY;
  const int quartet = get_local_id(0) / 128;
#if LISTED
  LISTED_OF_ALL;
  const work_t work = listed_work(work_of(M, N, K, STAGE_K, 1, whole, split_k), STAGE_K, tiles_listed, products);
#else
  const work_t work = work_of(M, N, K, STAGE_K, PRODUCTS_NEEDED(stack), whole, split_k);
#endif
  if ((LISTED | (GATE == 2)) && (int)get_group_id(0) >= pieces_of(work)) return;

  /* Operands: each feeder's tensor map, and its first piece. */
  const stages_t stages = stages_in(tiles, bars);
  const int sub_group = first_ones(get_local_id(0) / 32);
  const int feeder = sub_group / 2, which = sub_group % 2;
  const bool feeds = feeder < FEEDERS;
  __global ulong *slot = maps + MAP_SLOT * (FEEDERS * (get_group_id(2) * get_num_groups(0) + get_group_id(0)) + feeder);
  fed_t operand;
  piece_t piece;
  if (feeds) {
    const ulong about = word_about(slot, which);
    fetch_map(slot + 16 * which);
    const long stride = which ? b_stride : a_stride, offset = which ? b_offset : a_offset;
    const long listed = which ? BATCH_OFFSET(batch_offsets, !SWAPPED) : BATCH_OFFSET(batch_offsets, SWAPPED);
    __global const void *all = which ? (__global const void *)b : (__global const void *)a;
    piece = piece_at(get_group_id(0), work);
    operand = fed_operand(
        which, slot, scratch + 32 * sub_group, operand_in_stack(all, offset, z, stride, listed, ELEMENT_BYTES),
        which ? N : M, K, (which ? ldb : lda) * ELEMENT_BYTES, stack, stack > 1 ? stride * ELEMENT_BYTES : 0, about);
  }

  /* Barriers of the stages. */
  if (get_local_id(0) == WORK_ITEMS - 1) begin_stages(stages, 2, 4 * OWNERS);
  barrier(CLK_LOCAL_MEM_FENCE);

  /* Quartet 0 copies, and stores what others leave in local memory. They multiply. */
  c += c_offset, out += out_offset, bias += bias_offset;
  if (quartet == 0) {
#if DRAIN
    fewer_registers();
    if (sub_group >= 2) drain(sub_group - 2, work, stages, batch_offsets, RESULT);
#endif
    if (!feeds || get_local_id(0) % 32) return;
    if (which == 0) feed(0, operand, feeder, work, piece, stages);
    else feed(1, operand, feeder, work, piece, stages);
    return;
  }
#if DRAIN
  multiply_and_leave(quartet - 1, work, stages, partial, batch_offsets, RESULT);
#else
  multiply(quartet, work, stages, partial, batch_offsets, RESULT);
#endif
}
