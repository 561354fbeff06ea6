/* wgmma_stages: the ring of stages (stages.h) that wgmma.cl and wgmma_split.cl multiply from, and the sub-groups
 * that fill it. A stage holds BLOCKS blocks, lines of 128 bytes of K:
 *
 *     stage s:  | block of A, BM lines | block of B, BN lines |  .. BLOCKS times ..   s + 1 ..
 *
 * Of the first quartet of a work-group, sub-groups 2 f and 2 f + 1 are feeder f of A and of B: feeders take turns.
 * Two are there where a stage takes less time than one needs to start its copies, some 0.17 us.
 *
 * Macros: BM BN STAGES BLOCKS; WGMMA_ACROSS_A WGMMA_ACROSS_B; those of elements.h and work_pieces.h but STAGE_K.
 */
#include "include/attributes.h"
#include "nvidia/elements.h"
#define BLOCK_K (128 / ELEMENT_BYTES)
#define STAGE_K (BLOCKS * BLOCK_K)
#include "nvidia/ptx_map.h"
#include "nvidia/ptx_group.h"
#include "nvidia/stages.h"
#include "nvidia/work_pieces.h"

#if !defined(BLOCKS) || !defined(WGMMA_ACROSS_A) || !defined(WGMMA_ACROSS_B)
#error "wgmma_stages.h needs BLOCKS WGMMA_ACROSS_A WGMMA_ACROSS_B"
#endif
#define TILE_A (BM * 128)
#define BLOCK_BYTES (TILE_A + BN * 128)
#define STAGE_BYTES (BLOCKS * BLOCK_BYTES)
#define ROWS_64 (64 * 128) /* bytes of 64 rows of A */
#define FEEDERS (BM * BN <= 64 * 64 ? 2 : 1)

/* An operand as its feeders see it: `which` 0 A, 1 B; of `lines` rows of A (columns of B), no more than `most` a tile,
 * across K in boxes of `box`. */
typedef struct { __global ulong *map; int which, across, box, most, lines; bool layered; } fed_t;

/* By a sub-group, before fed_operand: as a rule the map is that of the last call, so that its fetch may begin before this
 * is known. */
INLINE void fetch_map(const int which, __global ulong *slot)
{
  if (get_local_id(0) % 32) return;
  map_acquire(slot + 16 * which);
  map_prefetch(slot + 16 * which);
}

/* Its tensor map, in this work-group's slot. `length` rows (columns) by `depth` of K, lines `line_bytes` apart;
 * layer_bytes: from one product of the stack to the next, 0 where they share the operand. A whole sub-group calls it. */
INLINE fed_t fed_operand(
    const int which, __global ulong *slot, __local uint *scratch, __global const uchar *from, const int length,
    const int depth, const long line_bytes, const int stack, const long layer_bytes)
{
  const int most = which ? BN : BM, across = which ? WGMMA_ACROSS_B : WGMMA_ACROSS_A;
  const int box = which && BN < BLOCK_K ? BN : BLOCK_K;
  const int lines = min(most, (length + 7) / 8 * 8); /* nothing is stored of what is beyond */
  const fed_t operand = {slot + 16 * which, which, across, box, most, lines, layer_bytes != 0};
  const map_t wanted = {
      from, across ? length : depth, across ? depth : length, layer_bytes ? stack : 1,
      line_bytes, layer_bytes ? layer_bytes : line_bytes, across ? box : BLOCK_K, across ? BLOCK_K : lines, 1};
  keep_map(slot, which, scratch, wanted, across ? box * ELEMENT_BYTES : 128);
  return operand;
}

/* Starts the copies of one stage, step `k` / STAGE_K of a piece, once the stage is empty. */
INLINE void fill_stage(const fed_t operand, const piece_t piece, const int k, const ring_t ring, const stages_t stages)
{
  const int row = operand.which ? piece.origin.s1 : piece.origin.s0;
  const int layer = operand.layered ? piece.layer : 0;
  const int boxes = (operand.lines + operand.box - 1) / operand.box;
  const uint bytes = (operand.across ? boxes * operand.box : operand.lines) * 128;
  const uint bar = begin_filling(stages, ring, BLOCKS * bytes);
  UNROLL for (int block = 0; block < BLOCKS; ++block) {
    const uint to = stages.tiles + ring.stage * STAGE_BYTES + block * BLOCK_BYTES + operand.which * TILE_A;
    const int at = k + block * BLOCK_K;
    if (!operand.across) copy_box(to, operand.map, at, row, layer, bar);
    UNROLL for (int i = 0; i < (operand.across ? (operand.most + operand.box - 1) / operand.box : 0); ++i)
      if (i == 0 || i < boxes)
        copy_box(to + i * operand.box * 128, operand.map, row + operand.box * i, at, layer, bar);
  }
}

/* Fills stages with every FEEDERS-th step of a piece from its `n`-th on, up to its `end`-th, beginning `turn` steps
 * further and going round. Returns the first n that was not filled. */
INLINE int feed_piece(
    const fed_t operand, const piece_t piece, int n, const int end, const int turn, ring_t *ring, const stages_t stages)
{
  int k = (piece.first + n + turn) * STAGE_K;
  for (; n < end; n += FEEDERS) {
    if (k >= piece.end * STAGE_K) k -= (piece.end - piece.first) * STAGE_K;
    fill_stage(operand, piece, k, *ring, stages);
    k += FEEDERS * STAGE_K;
    *ring = advanced(*ring, FEEDERS);
  }
  return n;
}
