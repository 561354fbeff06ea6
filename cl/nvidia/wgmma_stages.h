/* wgmma_stages: the ring of stages (stages.h) that wgmma.cl and wgmma_split.cl multiply from, and the sub-groups that
 * fill it.
 *
 *     stage s:  | block of A: BM x 128 bytes | block of B: BN x 128 bytes |  .. BLOCKS times ..   s + 1 ..
 *
 * A block holds 128 bytes of K, BLOCK_K elements, of each row of the tile of A and each column of the tile of B, in
 * boxes of ptx_map.h.
 *
 * A feeder is a sub-group that starts copies of one operand. Of a work-group's first quartet, sub-group 2 f is feeder f
 * of A and sub-group 2 f + 1 feeder f of B, f < FEEDERS. Feeder f fills every FEEDERS-th stage. Small tiles have two
 * feeders for each operand: starting a stage's copies takes 0.17 us (H200), longer than multiplying it.
 *
 * Macros: BM BN; STAGES, 2 or more; BLOCKS, blocks of a stage, 1 or more; ACROSS_A ACROSS_B 1: the operand is stored
 * across K, 0: along K; ELEMENT (elements.h); GROUP SPLIT_K (work_pieces.h).
 * Technique: CUTLASS's kernels for sm_90 also have sub-groups of their own that start the copies.
 */
#include "nvidia/elements.h"
#include "nvidia/ptx_map.h"
#include "nvidia/ptx_group.h"
#include "nvidia/stages.h"
#include "nvidia/work_pieces.h"

#if !defined(BLOCKS) || !defined(ACROSS_A) || !defined(ACROSS_B)
#error "wgmma_stages.h needs BLOCKS ACROSS_A ACROSS_B"
#endif
#define BLOCK_K (128 / ELEMENT_BYTES)
#define STAGE_K (BLOCKS * BLOCK_K)
#define TILE_A (BM * 128)
#define BLOCK_BYTES (TILE_A + BN * 128)
#define STAGE_BYTES (BLOCKS * BLOCK_BYTES)
#define ROWS_64 (64 * 128) /* bytes of 64 rows of A */
#define FEEDERS (BM * BN <= 64 * 64 ? 2 : 1)

/* An operand as its feeders see it, A or B (which: 0, 1, a constant in each function). `lines`: rows of A (columns of B)
 * that are copied for a tile; of B along K those that this member copies. `layered`: each product of the stack has its own. */
typedef struct { __global ulong *map; int lines; bool layered; } fed_t;

#define MOST(which) ((which) ? BN : BM) /* lines of a tile */
#define ACROSS(which) ((which) ? ACROSS_B : ACROSS_A)
#define BOX(which) min((which) ? BN : BM, BLOCK_K) /* lines of a box, if stored across K */

/* Describes an operand of `length` rows (columns) and `depth` of K in a tensor map of this feeder's slot.
 * line_bytes: its leading dimension in bytes. layer_bytes: from one product of the stack to the next, 0 if all use the
 * same operand. about: word_about's. A whole sub-group calls this. */
INLINE fed_t fed_operand(
    const int which, __global ulong *slot, __local uint *scratch, __global const uchar *from, const int length,
    const int depth, const long line_bytes, const int stack, const long layer_bytes, const ulong about)
{
  const int across = ACROSS(which), box = BOX(which);
  const int lines = min(MOST(which), (length + 7) / 8 * 8); /* results beyond `length` are not stored */
  const int own = which ? (lines / 8 + CLUSTER - 1) / CLUSTER * 8 : lines; /* of this member (ptx_cluster.h) */
  const map_t wanted = {
      from, across ? length : depth, across ? depth : length, layer_bytes ? stack : 1,
      line_bytes, layer_bytes ? layer_bytes : line_bytes, across ? box : BLOCK_K, across ? BLOCK_K : own, 1};
  keep_map(slot, which, scratch, wanted, across ? box * ELEMENT_BYTES : 128, about);
  return (fed_t){slot + 16 * which, across ? lines : own, layer_bytes != 0};
}

/* Starts the copies of STAGE_K elements of K from `k` on into the stage at `ring`, once that is empty. Of B: this member's
 * part of them, into every member's stage. */
INLINE void fill_stage(
    const int which, const fed_t operand, const piece_t piece, const int k, const ring_t ring, const stages_t stages)
{
  const int parts = which ? CLUSTER : 1, part = which ? member() : 0;
  const int row = which ? piece.origin.s1 : piece.origin.s0, box = BOX(which);
  const int layer = operand.layered ? piece.layer : 0;
  const int boxes = (operand.lines + box - 1) / box;
  const uint bytes = (ACROSS(which) ? boxes * box : parts * operand.lines) * 128;
  const uint bar = begin_filling(stages, ring, BLOCKS * bytes);
  UNROLL for (int block = 0; block < BLOCKS; ++block) {
    const uint to = stages.tiles + ring.stage * STAGE_BYTES + block * BLOCK_BYTES + which * TILE_A;
    const int at = k + block * BLOCK_K, line = part * operand.lines;
    if (!ACROSS(which)) copy_box_to(parts, to + line * 128, operand.map, at, row + line, layer, bar);
    UNROLL for (int i = 0; i < (ACROSS(which) ? (MOST(which) + box - 1) / box : 0); ++i)
      if ((i == 0 || i < boxes) && i % parts == part)
        copy_box_to(parts, to + i * box * 128, operand.map, row + box * i, at, layer, bar);
  }
}

/* Copies steps n, n + FEEDERS, .. of a piece while they are below `end`. Steps are counted from the piece's step `turn`
 * on and wrap at its end. Returns the first step at or above `end`. */
INLINE int feed_piece(
    const int which, const fed_t operand, const piece_t piece, int n, const int end, const int turn, ring_t *ring,
    const stages_t stages)
{
  int k = (piece.first + n + turn) * STAGE_K;
  for (; n < end; n += FEEDERS) {
    if (k >= piece.end * STAGE_K) k -= (piece.end - piece.first) * STAGE_K;
#if LISTED == 2
    fill_stage(which, operand, piece, piece.k + k, *ring, stages);
#else
    fill_stage(which, operand, piece, k, *ring, stages);
#endif
    k += FEEDERS * STAGE_K;
    *ring = advanced(*ring, FEEDERS);
  }
  return n;
}
