/* wgmma_feeders: the sub-groups that fill the ring of stages (stages.h) from which wgmma.cl, its forms and wgmma_split.cl multiply.
 *
 *     a block:  | A: BM x 128 bytes | B: BN x 128 bytes |          a stage: one block, or several one after the other
 *
 * A block holds 128 bytes of K, BLOCK_K elements, of each row of the tile of A and each column of the tile of B, in
 * boxes of ptx_map.h.
 *
 * A feeder starts copies of one operand. Of a work-group's first quartet, sub-group 2 f is feeder f of A and sub-group
 * 2 f + 1 feeder f of B, f < FEEDERS. Feeder f fills every FEEDERS-th stage. Small tiles have two feeders for each
 * operand: starting a stage's copies takes 0.17 us (H200), longer than multiplying it.
 *
 * Each feeder keeps its tensor map in a slot of `maps`. The products of a stack are layers of the maps. If they do not
 * lie at equal distances, `stack` is 1 and each product has its own work-groups, in dimension 2.
 *
 * Arguments `which`: 0, A; 1, B; `blocks`: of a stage, a constant.
 * Macros: BM BN; STAGES, 2 or more; ACROSS_A ACROSS_B 1: the operand is stored across K, 0: along K; ELEMENT
 * (operands.h); GROUP SPLIT_K (work_pieces.h).
 * Technique: CUTLASS's kernels for sm_90 also have sub-groups of their own that start the copies.
 */
#include "nvidia/operands.h"
#include "nvidia/stages.h"
#include "nvidia/work_pieces.h"

#if !defined(ACROSS_A) || !defined(ACROSS_B)
#error "wgmma_feeders.h needs ACROSS_A ACROSS_B"
#endif
#define BLOCK_K (128 / ELEMENT_BYTES)
#define TILE_A (BM * 128)
#define BLOCK_BYTES (TILE_A + BN * 128)
#define ROWS_64 (64 * 128) /* bytes of 64 rows of A */
#define FEEDERS (BM * BN <= 64 * 64 ? 2 : 1)

/* --- Operands: what a feeder copies, and from where ---
 *
 * `lines`: rows of A (columns of B) that are copied for a tile; of B along K those that this member copies. `layered`: each
 * product of the stack has its own. */
typedef struct { __global ulong *map; int lines; bool layered; } fed_t;

/* Describes an operand of `length` rows (columns) and `depth` of K in a tensor map of this feeder's slot.
 * line_bytes: its leading dimension in bytes. layer_bytes: from one product of the stack to the next, 0 if all use the
 * same operand. about: word_about's. A whole sub-group calls this. */
INLINE fed_t fed_operand(
    const int which, __global ulong *slot, __local uint *scratch, __global const uchar *from, const int length,
    const int depth, const long line_bytes, const int stack, const long layer_bytes, const ulong about)
{
  const int across = which ? ACROSS_B : ACROSS_A, box = min(which ? BN : BM, BLOCK_K); /* of lines, if across */
  const int lines = min(which ? BN : BM, (length + 7) / 8 * 8); /* results beyond `length` are not stored */
  const int own = which ? (lines / 8 + CLUSTER - 1) / CLUSTER * 8 : lines; /* of this member (ptx_map.h) */
  const map_t wanted = {
      from, across ? length : depth, across ? depth : length, layer_bytes ? stack : 1,
      line_bytes, layer_bytes ? layer_bytes : line_bytes, across ? box : BLOCK_K, across ? BLOCK_K : own, 1};
  keep_map(slot, which, scratch, wanted, across ? box * ELEMENT_BYTES : 128, about);
  return (fed_t){slot + 16 * which, across ? lines : own, layer_bytes != 0};
}

/* A sub-group. `feeds`: it copies. `number`: which of the feeders of its operand. `first`: its work-group's first piece. */
typedef struct { bool feeds; int sub_group, number, which; fed_t operand; piece_t first; } feeder_t;

/* This sub-group, with its operand described in its tensor map, which is in a slot of `maps`: that of `stack` products from product
 * z on. `exchanged`: `a` is the caller's b. `scratch`: 64 FEEDERS words. */
INLINE feeder_t feeder_of(
    __global ulong *maps, const work_t work, __local uint *scratch, const long z, const int stack, const bool exchanged,
    OPERANDS_ARGS)
{
  feeder_t own;
  own.sub_group = first_ones(get_local_id(0) / 32);
  own.number = own.sub_group / 2;
  __global ulong *slot =
      maps + MAP_SLOT * (FEEDERS * (get_group_id(2) * get_num_groups(0) + get_group_id(0)) + own.number);
  const int which = own.which = own.sub_group % 2;
  own.feeds = own.number < FEEDERS;
  if (!own.feeds) return own;
  const ulong about = word_about(slot, which);
  fetch_map(slot + 16 * which);
  const long stride = which ? b_stride : a_stride, offset = which ? b_offset : a_offset;
  const long listed = which ? BATCH_OFFSET(batch_offsets, !exchanged) : BATCH_OFFSET(batch_offsets, exchanged);
  __global const void *all = which ? (__global const void *)b : (__global const void *)a;
  own.first = piece_at(first_piece(), work);
  own.operand = fed_operand(
      which, slot, scratch + 32 * own.sub_group, operand_in_stack(all, offset, z, stride, listed, ELEMENT_BYTES),
      which ? N : M, K, (which ? ldb : lda) * ELEMENT_BYTES, stack, stack > 1 ? stride * ELEMENT_BYTES : 0, about);
  return own;
}

/* --- Copies ---
 *
 * Starts those of `blocks` BLOCK_K elements of K from `k` on into the stage at `ring`, once that is empty. Of B: this member's
 * part of them, into every member's stage. */
INLINE void fill_stage(
    const int which, const fed_t operand, const int blocks, const piece_t piece, const int k, const ring_t ring,
    const stages_t stages)
{
  const int parts = which ? CLUSTER : 1, part = which ? member() : 0;
  const int across = which ? ACROSS_B : ACROSS_A, most = which ? BN : BM, box = min(most, BLOCK_K);
  const int row = which ? piece.origin.s1 : piece.origin.s0;
  const int layer = operand.layered ? piece.layer : 0;
  const int boxes = (operand.lines + box - 1) / box;
  const uint bytes = (across ? boxes * box : parts * operand.lines) * 128;
  const uint bar = begin_filling(stages, ring, blocks * bytes);
  UNROLL for (int block = 0; block < blocks; ++block) {
    const uint to = stages.tiles + ring.stage * (blocks * BLOCK_BYTES) + block * BLOCK_BYTES + which * TILE_A;
    const int at = k + block * BLOCK_K, line = part * operand.lines;
    if (!across) copy_box_to(parts, to + line * 128, operand.map, at, row + line, layer, bar);
    UNROLL for (int i = 0; i < (across ? (most + box - 1) / box : 0); ++i)
      if ((i == 0 || i < boxes) && i % parts == part)
        copy_box_to(parts, to + i * box * 128, operand.map, row + box * i, at, layer, bar);
  }
}

/* Copies steps n, n + FEEDERS, .. of a piece while they are below `end`. Steps are counted from the piece's step `turn`
 * on and wrap at its end. Returns the first step at or above `end`. */
INLINE int feed_piece(
    const int which, const fed_t operand, const int blocks, const piece_t piece, int n, const int end, const int turn,
    ring_t *ring, const stages_t stages)
{
  const int step_k = blocks * BLOCK_K;
  int k = (piece.first + n + turn) * step_k;
  for (; n < end; n += FEEDERS) {
    if (k >= piece.end * step_k) k -= (piece.end - piece.first) * step_k;
#if LISTED == 2
    fill_stage(which, operand, blocks, piece, piece.k + k, *ring, stages);
#else
    fill_stage(which, operand, blocks, piece, k, *ring, stages);
#endif
    k += FEEDERS * step_k;
    *ring = advanced(*ring, FEEDERS);
  }
  return n;
}

/* Starts the copies of one operand, a constant, for all pieces of the work-group, in stages of one block.
 *
 * If there is only one row or one column of tiles, the work-groups start at different steps of K. Otherwise all of
 * them would read the same cache lines of the small operand at the same time. Where K is divided (LISTED 2) the last step
 * of a product must stay the last. */
INLINE void feed_operand(const int which, const feeder_t own, const work_t work, const stages_t stages)
{
  const int pieces = pieces_of(work), groups = piece_step();
  ring_t ring = {own.number, 0};
  piece_t piece = own.first;
  int n = own.number; /* this feeder's next step of the piece */
  for (int number = first_piece();; piece = piece_at(number, work)) {
    const int steps = piece.end - piece.first;
    const int place = piece.origin.s0 / (CLUSTER * BM) + piece.origin.s1 / BN; /* of the tile in the only row or column */
    const bool turned = LISTED != 2 && min(work.tiles_m, work.tiles_n) == 1 && steps;
    n = feed_piece(which, own.operand, 1, piece, n, steps, turned ? place % steps : 0, &ring, stages) - steps;
    number += groups;
    if (number >= pieces) return;
  }
}

/* Starts the copies of a feeder. All sub-groups of quartet 0 may call this. */
INLINE void feed(const feeder_t own, const work_t work, const stages_t stages)
{
  if (!own.feeds || get_local_id(0) % 32) return;
  if (own.which == 0) feed_operand(0, own, work, stages);
  else feed_operand(1, own, work, stages);
}
