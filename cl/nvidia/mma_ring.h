/* mma_ring: a work-group's tile of A B on matrix units, for mma, mma_double and mma_split. cp.async copies blocks of K
 * into a ring of STAGES in local memory. While one block is multiplied, the copies of the next ones are in flight.
 *
 *                        BN
 *                 +---------------+        sub-group (y, x): SGM x SGN of the tile,
 *      K: BK      | B             |        SGM / 16 x SGN / 8 fragments
 *                 +---------------+
 *     +------+    +-------+-------+
 *  BM | A    |    | (0,0) | (0,1) | SGM
 *     |      |    +-------+-------+
 *     +------+    | (1,0) | (1,1) |
 *                 +-------+-------+
 *
 * A tile of an operand lies in lines. Along K, a line holds BK elements of one row of A (column of B). Across K, it
 * holds LINE_ACROSS rows (columns) at one k. Neighbouring work-items copy neighbouring chunks of CHUNK_BYTES of a line.
 *
 * A header of instructions (mma_words.h, mma_double.h) comes first and defines
 *
 *   ELEMENT_BYTES BK STEPS          a block is multiplied in STEPS steps
 *   ACROSS_A ACROSS_B               1: the operand is stored across K
 *   CHUNK_BYTES                     bytes of a copy: 8, 16
 *   LINE_ACROSS(extent)             elements of a line across K, of a tile of `extent` rows
 *   LINE_BYTES(elements)            distance between lines in local memory
 *   CHUNK_AT(line, chunk)           where in its line a chunk lies
 *   acc_t word_t WORDS_A WORDS_B    types of an accumulator and of a register; registers of a fragment
 *   LOADED_B                        fragments of B that one load_b loads
 *   load_a load_b mma
 *   PARTS                           1: a block holds 64 bytes of hi and 64 bytes of lo of the same k (split.h)
 *
 * Macros: BM BN, multiples of SGM, SGN and of lines across K; SGM, a multiple of 16; SGN, a multiple of 8 LOADED_B;
 * STAGES, 2 or more; GROUP (tile_order.h). WORK_ITEMS is a multiple of a line's chunks and divides a tile's.
 * Technique: CUTLASS's multistage pipeline for sm_80.
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
#define TILE_LINE(extent, across) ((across) ? LINE_ACROSS(extent) : BK) /* elements of a line */
#define TILE_LINES(extent, across) ((across) ? BK * ((extent) / LINE_ACROSS(extent)) : (extent)) /* lines */
#define TILE_BYTES(extent, across) (TILE_LINES(extent, across) * LINE_BYTES(TILE_LINE(extent, across)))
#define LINE_CHUNKS(extent, across) (TILE_LINE(extent, across) * ELEMENT_BYTES / CHUNK_BYTES)
#define LINES_AT_ONCE(extent, across) (WORK_ITEMS / LINE_CHUNKS(extent, across))
#define COPIES_OF(extent, across) (TILE_LINES(extent, across) / LINES_AT_ONCE(extent, across))
#define COPIES_A COPIES_OF(BM, ACROSS_A)
#define COPIES (COPIES_A + COPIES_OF(BN, ACROSS_B))
#define TILE_A TILE_BYTES(BM, ACROSS_A)
#define STAGE_BYTES (TILE_A + TILE_BYTES(BN, ACROSS_B))
#define ROUND 2 /* blocks of parts that matrix units sum from zero: they truncate as they accumulate */

/* The chunks of an operand that one work-item copies. */
typedef struct {
  __global const uchar *next; /* the first chunk of the block that is copied next */
  long pitch; /* leading dimension in bytes */
  int x, y; /* element within a line, and line, of the first chunk: a row of the operand, and k in the block */
  int limit; /* rows of the operand */
  uint place; /* of the first chunk in a stage */
} Operand;

/* An operand of `limit` rows (columns), its tile of `extent` rows beginning at row `first`. `tile`: where the tile lies
 * in a stage. */
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

/* Copy i of the block that begins at k, into `stage`. Outside of the operand it writes zeros. */
INLINE void copy_chunk(
    const uint stage, const Operand operand, const int extent, const int across, const int i, const int k, const int K)
{
  const int line = i * LINES_AT_ONCE(extent, across);
  const int beside = across ? line / BK * LINE_ACROSS(extent) : 0; /* rows in the lines before, across K */
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

/* Copy c of block `block`. Past the last block it writes zeros that are never read. */
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

/* Closes the group of a block's copies and moves on to the next block. */
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

INLINE void multiply_fragments(acc_t sum[MT][4 * NT], word_t a[MT][WORDS_A], word_t b[NT][WORDS_B])
{
  UNROLL for (int i = 0; i < MT; ++i)
    UNROLL for (int j = 0; j < NT; ++j) mma(sum[i] + 4 * j, a[i], b[j]);
}

/* sum += hi lo + lo hi + hi hi of a block. Steps 0 and 1 are those of hi, 2 and 3 those of lo. */
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

/* sum = A B for the sub-group's SGM x SGN of the tile, at `row` and `column` of it. */
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
    word_t fa[2][MT][WORDS_A], fb[2][NT][WORDS_B]; /* one step is multiplied while the next is loaded */
    load_fragments_a(fa[0], tiles, stage, row, 0);
    load_fragments_b(fb[0], tiles, stage, column, 0);
    UNROLL for (int step = 0; step < STEPS; ++step) {
      if (step + 1 < STEPS) {
        load_fragments_a(fa[(step + 1) % 2], tiles, stage, row, step + 1);
        load_fragments_b(fb[(step + 1) % 2], tiles, stage, column, step + 1);
      }
      UNROLL for (int i = 0; i < MT; ++i) {
        UNROLL for (int j = 0; j < NT; ++j) mma(sum[i] + 4 * j, fa[step % 2][i], fb[step % 2][j]);
        /* the copies of a later block are spread over this block's multiplications */
        UNROLL for (int c = 0; c < COPIES; ++c)
          if (c * STEPS * MT / COPIES == step * MT + i) copy_one(tile0, a, b, c, filled, K);
      }
    }
    block_copied(&a, &b);
#endif
  }
}
