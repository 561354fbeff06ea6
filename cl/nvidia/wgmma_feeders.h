/* wgmma_feeders: what the feeders of wgmma_stages.h copy for wgmma.cl and its forms: all pieces of their work-group.
 *
 * Each feeder of A and of B keeps its tensor map in a slot of `maps`. The products of a stack are layers of the maps. If
 * they do not lie at equal distances, `stack` is 1 and each product has its own work-groups, in dimension 2.
 *
 * Macros: SWAPPED 1: `a` is the caller's b; those of wgmma_stages.h and operands.h.
 */
#include "nvidia/elements.h"
#include "nvidia/operands.h"
#include "nvidia/ptx_group.h"
#include "nvidia/wgmma_stages.h"

#ifndef SWAPPED
#error "wgmma_feeders.h needs SWAPPED"
#endif

/* A sub-group. `feeds`: it copies. `number`: which of the feeders of A (which 0) or B (which 1). `first`: its work-group's
 * first piece. */
typedef struct { bool feeds; int number, which; fed_t operand; piece_t first; } feeder_t;

/* The slot of feeder `number` of this work-group. */
INLINE __global ulong *slot_of(__global ulong *maps, const int number)
{
  return maps + MAP_SLOT * (FEEDERS * (get_group_id(2) * get_num_groups(0) + get_group_id(0)) + number);
}

/* Sub-group `sub_group`, with its operand described in its tensor map in `slot`: that of `stack` products from product z
 * on. `scratch`: 64 FEEDERS words. */
INLINE feeder_t feeder_of(
    const int sub_group, __global ulong *slot, const work_t work, __local uint *scratch, const long z, const int stack,
    OPERANDS_ARGS)
{
  feeder_t own;
  const int which = sub_group % 2;
  own.number = sub_group / 2, own.which = which;
  own.feeds = own.number < FEEDERS;
  if (!own.feeds) return own;
  const ulong about = word_about(slot, which);
  fetch_map(slot + 16 * which);
  const long stride = which ? b_stride : a_stride, offset = which ? b_offset : a_offset;
  const long listed = which ? BATCH_OFFSET(batch_offsets, !SWAPPED) : BATCH_OFFSET(batch_offsets, SWAPPED);
  __global const void *all = which ? (__global const void *)b : (__global const void *)a;
  own.first = piece_at(get_group_id(0), work);
  own.operand = fed_operand(
      which, slot, scratch + 32 * sub_group, operand_in_stack(all, offset, z, stride, listed, ELEMENT_BYTES),
      which ? N : M, K, (which ? ldb : lda) * ELEMENT_BYTES, stack, stack > 1 ? stride * ELEMENT_BYTES : 0, about);
  return own;
}

/* Starts the copies of one operand, a constant, for all pieces.
 *
 * If there is only one row or one column of tiles, the work-groups start at different steps of K. Otherwise all of
 * them would read the same cache lines of the small operand at the same time. Where K is divided (LISTED 2) the last step
 * of a product must stay the last. */
INLINE void feed_operand(const int which, const feeder_t own, const work_t work, const stages_t stages)
{
  const int pieces = pieces_of(work), groups = get_num_groups(0);
  ring_t ring = {own.number, 0};
  piece_t piece = own.first;
  int n = own.number; /* this feeder's next step of the piece */
  for (int number = get_group_id(0);; piece = piece_at(number, work)) {
    const int steps = piece.end - piece.first;
    const int place = piece.origin.s0 / BM + piece.origin.s1 / BN; /* of the tile in the only row or column */
    const bool turned = LISTED != 2 && min(work.tiles_m, work.tiles_n) == 1 && steps;
    n = feed_piece(which, own.operand, piece, n, steps, turned ? place % steps : 0, &ring, stages) - steps;
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
