/* mma_ring: what mma, mma_double and mma_split are: a work-group's tile of A B, on matrix units, from blocks of K
 * that cp.async brings into a ring of STAGES in local memory: one is multiplied, the others are on their way.
 *
 *                        BN
 *                 +---------------+        sub-group (y, x): SGM x SGN of the tile, made of
 *      K: BK      | B             |        SGM / 16 x SGN / 8 fragments
 *                 +---------------+
 *     +------+    +-------+-------+
 *  BM | A    |    | (0,0) | (0,1) | SGM
 *     |      |    +-------+-------+
 *     +------+    | (1,0) | (1,1) |
 *                 +-------+-------+
 *
 * A tile of an operand lies in lines: along K of one row of A (column of B), across K of rows at one k. Work-items
 * copy chunks of CHUNK_BYTES, side by side along lines.
 *
 * A header of instructions comes first and says
 *
 *   ELEMENT_BYTES BK STEPS          STEPS steps of a block are multiplied one after the other
 *   ACROSS_A ACROSS_B               whether an operand's lines run across K
 *   CHUNK_BYTES LINE_ACROSS(extent) of a copy; elements of a line across K of a tile of `extent` rows
 *   LINE_BYTES(elements)            from line to line in local memory
 *   CHUNK_AT(line, chunk)           where in its line a chunk lies
 *   acc_t word_t WORDS_A WORDS_B    registers of a fragment; LOADED_B fragments of B are loaded at once
 *   load_a load_b mma
 *   PARTS                           1: a block holds 64 bytes of hi and 64 of lo of the same k (split.h)
 *
 * Macros: BM BN, multiples of SGM, SGN and of lines across K; SGM a multiple of 16, SGN of 8 LOADED_B; STAGES 2 or more;
 * GROUP (tile_order.h).
 */
#include "include/attributes.h"
#include "include/tile_order.h"
#include "nvidia/ptx_copy.h"

#if !defined(SGM) || !defined(SGN) || !defined(STAGES)
#error "mma_ring.h needs SGM SGN STAGES"
#endif
#define SG_COLUMNS (BN / SGN)
#define WORK_ITEMS (32 * (BM / SGM) * SG_COLUMNS)
#define MT (SGM / 16)
#define NT (SGN / 8)
#define TILE_LINE(extent, across) ((across) ? LINE_ACROSS(extent) : BK) /* elements ... */
#define TILE_LINES(extent, across) ((across) ? BK * ((extent) / LINE_ACROSS(extent)) : (extent)) /* and number */
#define TILE_BYTES(extent, across) (TILE_LINES(extent, across) * LINE_BYTES(TILE_LINE(extent, across)))
#define LINE_CHUNKS(extent, across) (TILE_LINE(extent, across) * ELEMENT_BYTES / CHUNK_BYTES)
#define LINES_AT_ONCE(extent, across) (WORK_ITEMS / LINE_CHUNKS(extent, across))
#define COPIES_OF(extent, across) (TILE_LINES(extent, across) / LINES_AT_ONCE(extent, across))
#define COPIES_A COPIES_OF(BM, ACROSS_A)
#define COPIES (COPIES_A + COPIES_OF(BN, ACROSS_B))
#define TILE_A TILE_BYTES(BM, ACROSS_A)
#define STAGE_BYTES (TILE_A + TILE_BYTES(BN, ACROSS_B))
#define ROUND 2 /* blocks of parts that are summed from zero: the units truncate where they accumulate */

/* An operand on its way to local memory, by a work-item's chunks. */
typedef struct {
  __global const uchar *next; /* its first one of the block that is copied next */
  long pitch; /* bytes between lines in memory */
  int x, y; /* where its first one lies along a line, and on which: rows of the operand, and K of the block */
  int limit; /* rows of the operand */
  uint place; /* of its first one in a stage */
} Operand;

/* The operand of `limit` rows (columns) whose tile begins at `first`. `tile`: where that lies in a stage. */
INLINE Operand operand_of(
    __global const void *matrix, const long pitch, const int extent, const int across, const int first, const int limit,
    const uint tile)
{
  const int chunks = LINE_CHUNKS(extent, across), id = get_local_id(0);
  const int line = id / chunks, chunk = id % chunks;
  const int along = chunk * (CHUNK_BYTES / ELEMENT_BYTES);
  Operand operand = {(__global const uchar *)matrix, pitch, along, line, limit,
                     tile + line * LINE_BYTES(TILE_LINE(extent, across)) + CHUNK_AT(line, chunk)};
  if (across) operand.x += first;
  else operand.y += first;
  operand.next += operand.y * pitch + operand.x * (long)ELEMENT_BYTES;
  return operand;
}

/* Copy i of a block from k on, to `stage`; zeros outside of the operand. */
INLINE void copy_chunk(
    const uint stage, const Operand operand, const int extent, const int across, const int i, const int k, const int K)
{
  const int line = i * LINES_AT_ONCE(extent, across);
  const int beside = across ? line / BK * LINE_ACROSS(extent) : 0; /* rows of the lines before, across K */
  const int below = across ? line % BK : line;
  const int x = operand.x + (across ? beside : k);
  const int y = operand.y + below + (across ? k : 0);
  const int inside = min(max((across ? operand.limit : K) - x, 0), CHUNK_BYTES / ELEMENT_BYTES) * ELEMENT_BYTES;
  const int bytes = y < (across ? K : operand.limit) ? inside : 0;
  const uint to = stage + operand.place + line * LINE_BYTES(TILE_LINE(extent, across));
  __global const uchar *from = operand.next + below * operand.pitch + beside * ELEMENT_BYTES;
  if (CHUNK_BYTES == 16) copy_16(to, from, bytes);
  else copy_8(to, from, bytes);
}

/* Copy c of block `block`; past the last block, of zeros that nobody reads. */
INLINE void copy_one(
    const uint tiles, const Operand a, const Operand b, const int c, const int block, const int K)
{
  const uint stage = tiles + block % STAGES * STAGE_BYTES;
  if (c < COPIES_A) copy_chunk(stage, a, BM, ACROSS_A, c, block * BK, K);
  else copy_chunk(stage, b, BN, ACROSS_B, c - COPIES_A, block * BK, K);
}

INLINE void copy_all(const uint tiles, const Operand a, const Operand b, const int block, const int K)
{
  UNROLL for (int c = 0; c < COPIES; ++c) copy_one(tiles, a, b, c, block, K);
}

/* Closes a block's copies, and goes on to the next block. */
INLINE void block_copied(Operand *a, Operand *b)
{
  copies_commit();
  a->next += ACROSS_A ? BK * a->pitch : BK * ELEMENT_BYTES;
  b->next += ACROSS_B ? BK * b->pitch : BK * ELEMENT_BYTES;
}

INLINE void load_fragments_a(
    word_t w[MT][WORDS_A], __local const uchar *tiles, const int stage, const int row, const int step)
{
  UNROLL for (int i = 0; i < MT; ++i) load_a(w[i], tiles, stage, row + 16 * i, step);
}
INLINE void load_fragments_b(
    word_t w[NT][WORDS_B], __local const uchar *tiles, const int stage, const int column, const int step)
{
  UNROLL for (int j = 0; j < NT; j += LOADED_B) load_b(w + j, tiles, stage + TILE_A, column + 8 * j, step);
}
INLINE void clear(acc_t sum[MT][4 * NT])
{
  UNROLL for (int i = 0; i < MT; ++i)
    UNROLL for (int j = 0; j < 4 * NT; ++j) sum[i][j] = 0;
}

#if PARTS
/* sum += hi lo + lo hi + hi hi: steps 0 and 1 are those of hi, 2 and 3 those of lo. */
INLINE void multiply_fragments(acc_t sum[MT][4 * NT], word_t a[MT][WORDS_A], word_t b[NT][WORDS_B])
{
  UNROLL for (int i = 0; i < MT; ++i)
    UNROLL for (int j = 0; j < NT; ++j) mma(sum[i] + 4 * j, a[i], b[j]);
}

INLINE void multiply_parts(
    acc_t sum[MT][4 * NT], __local const uchar *tiles, const int stage, const int row, const int column)
{
  UNROLL for (int step = 0; step < 2; ++step) {
    word_t a_hi[MT][WORDS_A], a_lo[MT][WORDS_A], b_hi[NT][WORDS_B], b_lo[NT][WORDS_B];
    load_fragments_a(a_hi, tiles, stage, row, step);
    load_fragments_b(b_lo, tiles, stage, column, step + 2);
    multiply_fragments(sum, a_hi, b_lo);
    load_fragments_a(a_lo, tiles, stage, row, step + 2);
    load_fragments_b(b_hi, tiles, stage, column, step);
    multiply_fragments(sum, a_lo, b_hi);
    multiply_fragments(sum, a_hi, b_hi);
  }
}
#endif

/* The sub-group's part of a tile, from `row` and `column` of it on: sum = A B. */
INLINE void multiply_tile(
    acc_t sum[MT][4 * NT], __local uchar *tiles, Operand a, Operand b, const int K, const int row, const int column)
{
  const uint tile0 = local_address(tiles);
  const int blocks = (K + BK - 1) / BK;
  clear(sum);
#if PARTS
  acc_t acc[MT][4 * NT];
  clear(acc);
#endif
  int filled = 0;
  for (; filled < STAGES - 1; ++filled) {
    copy_all(tile0, a, b, filled, K);
    block_copied(&a, &b);
  }
  for (int block = 0; block < blocks; ++block, ++filled) {
    const int stage = block % STAGES * STAGE_BYTES;
    copies_wait(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
#if PARTS
    copy_all(tile0, a, b, filled, K);
    block_copied(&a, &b);
    multiply_parts(acc, tiles, stage, row, column);
    if (block % ROUND == ROUND - 1 || block + 1 == blocks) {
      UNROLL for (int i = 0; i < MT; ++i)
        UNROLL for (int j = 0; j < 4 * NT; ++j) sum[i][j] += acc[i][j];
      clear(acc);
    }
#else
    word_t fa[2][MT][WORDS_A], fb[2][NT][WORDS_B]; /* one step is multiplied, the next is loaded */
    load_fragments_a(fa[0], tiles, stage, row, 0);
    load_fragments_b(fb[0], tiles, stage, column, 0);
    UNROLL for (int step = 0; step < STEPS; ++step) {
      if (step + 1 < STEPS) {
        load_fragments_a(fa[(step + 1) % 2], tiles, stage, row, step + 1);
        load_fragments_b(fb[(step + 1) % 2], tiles, stage, column, step + 1);
      }
      UNROLL for (int i = 0; i < MT; ++i) {
        UNROLL for (int j = 0; j < NT; ++j) mma(sum[i] + 4 * j, fa[step % 2][i], fb[step % 2][j]);
        /* the next block's copies, spread over this block's multiplications */
        UNROLL for (int c = 0; c < COPIES; ++c)
          if (c * STEPS * MT / COPIES == step * MT + i) copy_one(tile0, a, b, c, filled, K);
      }
    }
    block_copied(&a, &b);
#endif
  }
}
