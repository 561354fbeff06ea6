/* wgmma: out = A B on the matrix units of sm_90a, tiles filled by the copy engine.
 *
 *                        BN                quartet 0: feeders start the copies (wgmma_stages.h);
 *                 +--------------+         quartets 1 ..: multiply
 *      K: 128     | B            |
 *      bytes      +--------------+         STAGES blocks of K are in flight
 *     +------+    +--------------+
 *  BM | A    |    | quartet 1    |
 *     |      |    | quartet 2    |
 *     +------+    +--------------+         work-group g computes pieces g, g + groups, ...
 *
 * A piece of work is a tile or a range of its K (work_pieces.h), of which split_k.cl adds the partial sums. With
 * ALTERNATE 0 there is a quartet for each 64 rows of a tile; with 1 two quartets, each has all of every other piece
 * and multiplies while the other one stores. Copies of the next piece run while one is stored. Each work-group keeps
 * the tensor maps of A and B, for each feeder, in its slots of `maps`. Products of a stack are layers of the maps,
 * or, where they do not lie at equal distances, each has work-groups of its own, in dimension 2.
 *
 * With SWAPPED this computes out^T = B^T A^T, and its a is the caller's b. TF32's units take operands along K from
 * local memory, but the left one, A, from registers, too, where it may lie across K (LEFT_REGISTERS). So of the
 * caller's operands the one across K becomes A.
 *
 * Macros: BM a multiple of 64, BN; GROUP, STAGES, SPLIT_K; ALTERNATE 0, 1; SWAPPED 0, 1; those of the headers.
 * Operands lie on multiples of 16 bytes, and so does each of their rows. TRANS_A, TRANS_B: as they lie, packed or not.
 * Technique: NVIDIA's description of wgmma and of the tensor memory accelerator in the PTX manual.
 */
#define ELEMENT A_TYPE
#define BLOCKS 1
#define WGMMA_ACROSS_A TRANS_A
#if TRANS_B
#define WGMMA_ACROSS_B 0
#else
#define WGMMA_ACROSS_B 1
#endif
#include "include/attributes.h"
#include "include/gemm.h"
#include "nvidia/operands.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_map.h"
#include "nvidia/ptx_wgmma.h"
#include "nvidia/ptx_group.h"
#include "nvidia/fragment.h"
#include "nvidia/fragment_rows.h"
#include "nvidia/fragment_columns.h"
#include "nvidia/wgmma_stages.h"

#if !defined(ALTERNATE)
#error "wgmma.cl needs ALTERNATE"
#endif
#define QUARTETS (ALTERNATE ? 2 : BM / 64)
#define OWNERS (ALTERNATE ? 1 : QUARTETS) /* quartets of one tile */
#define FRAGMENTS (ALTERNATE ? BM / 64 : 1) /* of 64 rows, a quartet */
#define ACCS (FRAGMENTS * WGMMA_ACC)
#define WORK_ITEMS (128 * (QUARTETS + 1))

/* Two quartets that have tiles of their own take turns in issuing multiplications: one stores while the
 * other multiplies, and the turn passes on with the tile. */
#define TURN_OF(quartet) (4 + (quartet)) /* a barrier */

#if LEFT_REGISTERS
/* Steps of 8 of K whose words of A are in registers, and by how many their loads are ahead of the instruction: it
 * waits for the unit to take its A, so that loads behind it come late. The largest tiles have no registers for
 * more than two, and two quartets, of which one multiplies meanwhile. */
#define LEFT_SETS (ACCS > 96 && WORK_ITEMS > 256 ? 2 : 4)
#define AHEAD (LEFT_SETS == 4)
/* A step of 8 of K: this work-item's words of A, all fragments. */
INLINE void load_left(uint *words, const uint place, const int step)
{
  UNROLL for (int f = 0; f < FRAGMENTS; ++f) {
    uint *w = words + 4 * f;
    load_pair(w, place + f * ROWS_64 + step * 1024);
    load_pair(w + 2, (place ^ 64) + f * ROWS_64 + step * 1024 + 512);
  }
}

/* Multiplies a stage, once it is full; `before`: the stage multiplied before is given back, -1: there is none. */
INLINE void multiply_stage(
    wgmma_acc *acc, uint (*left)[4 * FRAGMENTS], const uint mine, const int lane, const stages_t stages,
    const ring_t ring, const int before)
{
  const uint at = stages.tiles + ring.stage * STAGE_BYTES;
  const uint place = at + mine;
  const ulong right = wgmma_right(at + TILE_A, ROWS_64);
  wait_until_full(stages, ring);
  if (AHEAD) {
    wgmma_wait_all_but(LEFT_SETS - 1);
    load_left(left[0], place, 0);
  }
  UNROLL for (int step = 0; step < 4; ++step) {
    const uint *words = left[step % LEFT_SETS];
    wgmma_wait_all_but(LEFT_SETS - 1 - AHEAD); /* what read the registers that are loaded now is done */
    if (step == LEFT_SETS - 1 - AHEAD && before >= 0 && lane == 0) mbarrier_arrive(stages.empty + 8 * before);
    if (step + AHEAD < 4) load_left(left[(step + AHEAD) % LEFT_SETS], place, step + AHEAD);
    wgmma_fence();
    UNROLL for (int f = 0; f < FRAGMENTS; ++f)
      wgmma_left(acc + f * WGMMA_ACC, words + 4 * f, right + step * WGMMA_STEP_B);
    wgmma_commit();
  }
}
#else
INLINE void multiply_stage(
    wgmma_acc *acc, uint (*left)[4 * FRAGMENTS], const uint mine, const int lane, const stages_t stages,
    const ring_t ring, const int before)
{
  const uint at = stages.tiles + ring.stage * STAGE_BYTES;
  const ulong a = wgmma_tile(at + mine, ROWS_64);
  const ulong b = wgmma_right(at + TILE_A, ROWS_64);
  wait_until_full(stages, ring);
  wgmma_fence();
  UNROLL for (int step = 0; step < 4; ++step) {
    UNROLL for (int f = 0; f < FRAGMENTS; ++f)
      wgmma(acc + f * WGMMA_ACC, a + f * (ROWS_64 / 16) + step * WGMMA_STEP_A, b + step * WGMMA_STEP_B, 1);
  }
  wgmma_commit();
  wgmma_wait_previous();
  if (before >= 0 && lane == 0) mbarrier_arrive(stages.empty + 8 * before);
}
#endif

/* This work-item's sums of a range of K, for split_k.cl. */
INLINE void leave_sums(
    __global wgmma_acc *partial, const wgmma_acc *acc, const piece_t piece, const int part, const work_t work)
{
  const long tile = BATCH_ENTRY * (work.tiles - work.whole) + piece.tile - work.whole;
  const long slot = (tile * work.split_k + piece.range) * (BM * BN) + part * (128 * ACCS);
  __global wgmma_acc4 *to = (__global wgmma_acc4 *)(partial + slot) + get_local_id(0) % 128;
  UNROLL for (int i = 0; i < ACCS / 4; ++i)
    to[128 * i] = (wgmma_acc4)(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
}

/* The fragments of a quartet, `part` of a tile of product z, through the epilogue. */
INLINE void store_part(
    const wgmma_acc *acc, const piece_t piece, const int part, __global const long *batch_offsets, RESULT_ARGS)
{
  const long z = BATCH_ENTRY + piece.layer;
  out += BATCH_OFFSET_OF(batch_offsets, z, 3);
  c += BATCH_OFFSET_OF(batch_offsets, z, 2);
  const int row = piece.origin.s0 + part * 64 + fragment_row(get_local_id(0) % 128);
  UNROLL for (int f = 0; f < FRAGMENTS; ++f) {
#if SWAPPED
    store_fragment_columns(row + 64 * f, piece.origin.s1, acc + f * WGMMA_ACC, BN / 8, RESULT);
#else
    store_fragments(row + 64 * f, ROW_STEP, piece.origin.s1, acc + f * WGMMA_ACC, BN / 8, RESULT);
#endif
  }
}

/* Fills the stages with one operand for all pieces of this work-group.
 *
 * Work-groups that all share one row of tiles, or one column, start at different steps of K: at the same time they
 * would all want the same lines from the cache. */
INLINE void feed(const fed_t operand, const int feeder, const work_t work, const stages_t stages)
{
  const int pieces = pieces_of(work);
  ring_t ring = {feeder, 0};
  int n = feeder; /* of this piece's steps */
  for (int number = get_group_id(0); number < pieces; number += get_num_groups(0)) {
    const piece_t piece = piece_at(number, work);
    const int steps = piece.end - piece.first;
    const int place = piece.origin.s0 / BM + piece.origin.s1 / BN; /* of the tile, in its row or column */
    const bool turned = min(work.tiles_m, work.tiles_n) == 1 && steps;
    n = feed_piece(operand, piece, n, steps, turned ? place % steps : 0, &ring, stages) - steps;
  }
}

/* A quartet's part of all pieces of this work-group. */
INLINE void multiply(
    const int quartet, const work_t work, const stages_t stages, __global wgmma_acc *partial,
    __global const long *batch_offsets, RESULT_ARGS)
{
  const int pieces = pieces_of(work), part = ALTERNATE ? 0 : quartet - 1, groups = get_num_groups(0);
  const int lane = get_local_id(0) % 32;
#if LEFT_REGISTERS
  const uint where = part * ROWS_64 + fragment_place(get_local_id(0) % 128);
#else
  const uint where = part * ROWS_64;
#endif
  ring_t ring = {0, 0};
  bool mine = !ALTERNATE || quartet == 2;
  uint left[4][4 * FRAGMENTS]; /* LEFT_REGISTERS */
  for (int number = get_group_id(0); number < pieces; number += groups) {
    const piece_t piece = piece_at(number, work);
    if (ALTERNATE) mine = !mine;
    if (!mine) {
      ring = advanced(ring, piece.end - piece.first);
      continue;
    }
    wgmma_acc acc[ACCS];
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;
    int last = -1;
    if (ALTERNATE && number != (int)get_group_id(0)) meet(TURN_OF(quartet));
    for (int step = piece.first; step < piece.end; ++step) {
      multiply_stage(acc, left, where, lane, stages, ring, last);
      last = ring.stage;
      ring = advanced(ring, 1);
    }
    if (ALTERNATE && number + groups < pieces) announce(TURN_OF(3 - quartet));
    UNROLL for (int f = 0; f < FRAGMENTS; ++f) wgmma_wait(acc + f * WGMMA_ACC);
    if (last >= 0) release(stages, last);
    if (SPLIT_K && piece.range >= 0) {
      leave_sums(partial, acc, piece, part, work);
      continue;
    }
    store_part(acc, piece, part, batch_offsets, RESULT);
  }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma(
    GEMM_ARGS, OPERAND_STRIDES, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int split_k,
    const int stack)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] ALIGNED(128);
  const long z = BATCH_ENTRY;
  const int quartet = get_local_id(0) / 128;
  const work_t work = work_of(M, N, K, stack, whole, split_k);
  const stages_t stages = stages_in(tiles, bars);

  const int sub_group = first_ones(get_local_id(0) / 32), feeder = sub_group / 2, which = sub_group % 2;
  __global ulong *slot = maps + MAP_SLOT * (FEEDERS * (get_group_id(2) * get_num_groups(0) + get_group_id(0)) + feeder);
  if (get_local_id(0) == 64) begin_stages(stages, 2, 4 * OWNERS);
  if (feeder < FEEDERS) fetch_map(which, slot);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (quartet == 0) {
    if (feeder >= FEEDERS) return;
    if (which == 0) {
      const fed_t operand = fed_operand(
          0, slot, scratch + 32 * sub_group, operand_in_stack(a, a_offset, z, a_stride, BATCH_OFFSET(batch_offsets, SWAPPED), ELEMENT_BYTES),
          M, K, lda * ELEMENT_BYTES, stack, stack > 1 ? a_stride * ELEMENT_BYTES : 0);
      if (get_local_id(0) % 32 == 0) feed(operand, feeder, work, stages);
    } else {
      const fed_t operand = fed_operand(
          1, slot, scratch + 32 * sub_group, operand_in_stack(b, b_offset, z, b_stride, BATCH_OFFSET(batch_offsets, !SWAPPED), ELEMENT_BYTES),
          N, K, ldb * ELEMENT_BYTES, stack, stack > 1 ? b_stride * ELEMENT_BYTES : 0);
      if (get_local_id(0) % 32 == 0) feed(operand, feeder, work, stages);
    }
    return;
  }
  c += c_offset;
  out += out_offset;
  bias += bias_offset;
  multiply(quartet, work, stages, partial, batch_offsets, RESULT);
}
