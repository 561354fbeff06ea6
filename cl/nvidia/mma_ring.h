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
 * holds LINE_ACROSS rows (columns) at one k. The elements of a turned tile are copied one by one.
 *
 * A work-item copies pieces of CHUNK bytes. Neighbouring work-items copy neighbouring pieces of a line. Where the tile is
 * turned, 16 of them copy 16 neighbouring rows at one k, and the next 16 the same rows at the next k. Elements of 2 bytes
 * that begin on no multiple of 4 bytes (CHUNK 2) come through registers: pairs of them are read before a block is
 * multiplied and written to local memory after it.
 *
 * A header of instructions (mma_words.h, mma_double.h) comes first and defines
 *
 *   ELEMENT_BYTES BK STEPS          a block is multiplied in STEPS steps
 *   LIE_A LIE_B                     ALONG, ACROSS, TURNED (mma_layouts.h)
 *   LINE_ACROSS(extent)             elements of a line across K, of a tile of `extent` rows
 *   LINE_BYTES(elements)            distance between lines in local memory
 *   FLIP(byte, elements)            byte `byte` of a tile with lines of `elements` lies at byte ^ FLIP. FLIP changes bits
 *                                   4 to 6 only, and it depends on bits above them only
 *   acc_t word_t WORDS_A WORDS_B    types of an accumulator and of a register; registers of a fragment
 *   LOADED_B                        fragments of B that one load_b loads
 *   load_a load_b mma
 *   PARTS                           1: a block holds 64 bytes of hi and 64 bytes of lo of the same k (split.h)
 *
 * Macros: BM BN, multiples of SGM, SGN and of lines across K; SGM, a multiple of 16; SGN, a multiple of 8 LOADED_B;
 * STAGES, 2 or more; GROUP (tile_order.h); CHUNK_A CHUNK_B, bytes of a copy: 16, 8, 4, 2, of which rows of the operand
 * begin on multiples; TURNED: the size of an element. WORK_ITEMS is a multiple of a line's pieces and divides a tile's.
 * Technique: CUTLASS's multistage pipeline for sm_80.
 */
#include "include/attributes.h"
#include "include/tile_order.h"
#include "nvidia/mma_layouts.h"
#include "nvidia/ptx_copy.h"

#if !defined(SGM) || !defined(SGN) || !defined(STAGES) || !defined(CHUNK_A) || !defined(CHUNK_B)
#error "mma_ring.h needs SGM SGN STAGES CHUNK_A CHUNK_B"
#endif
#define SG_COLUMNS (BN / SGN)
#define SUB_GROUPS (BM / SGM * SG_COLUMNS)
#define WORK_ITEMS (32 * SUB_GROUPS)
#define MT (SGM / 16)
#define NT (SGN / 8)
#define TILE_LINE(extent, lie) ((lie) == ACROSS ? LINE_ACROSS(extent) : BK) /* elements of a line */
#define TILE_LINES(extent, lie) ((lie) == ACROSS ? BK * ((extent) / LINE_ACROSS(extent)) : (extent)) /* lines */
#define TILE_BYTES(extent, lie) (TILE_LINES(extent, lie) * LINE_BYTES(TILE_LINE(extent, lie)))
#define PIECE(chunk) ((chunk) == 2 ? 4 : (chunk)) /* bytes in local memory */
#define LINE_PIECES(extent, lie, chunk) (TILE_LINE(extent, lie) * ELEMENT_BYTES / PIECE(chunk))
#define LINES_AT_ONCE(extent, lie, chunk) (WORK_ITEMS / LINE_PIECES(extent, lie, chunk))
#define COPIES_OF(extent, chunk) ((extent) * BK * ELEMENT_BYTES / PIECE(chunk) / WORK_ITEMS)
#define COPIES_A COPIES_OF(BM, CHUNK_A)
#define COPIES (COPIES_A + COPIES_OF(BN, CHUNK_B))
#define THROUGH_REGISTERS (CHUNK_A == 2 || CHUNK_B == 2)
#define TURNED_ROWS 16 /* rows of a turned tile that a sub-group copies at once, at two values of k */
#define SMALLER_OF(x, y) ((x) < (y) ? (x) : (y))
#define STRIPS(extent) SMALLER_OF((extent) / TURNED_ROWS, SUB_GROUPS) /* of TURNED_ROWS, copied at once */
#define TILE_A TILE_BYTES(BM, LIE_A)
#define STAGE_BYTES (TILE_A + TILE_BYTES(BN, LIE_B))
#define ROUND 2 /* blocks of parts that matrix units sum from zero: they truncate as they accumulate */

/* The pieces of an operand that one work-item copies. */
typedef struct {
  __global const uchar *next; /* the first piece of the block that is copied next */
  long pitch; /* leading dimension in bytes */
  int row, k; /* of the first piece: row of the operand, and k in the block */
  int limit; /* rows of the operand */
  uint place; /* of the first piece in a stage */
} Operand;

/* From the first piece of a work-item to one of the others: rows, k, bytes in local memory, and bits that change in the
 * place. All are constants. */
typedef struct {
  int rows, k;
  uint bytes, flip;
} Step;

INLINE Step step_to(const int i, const int extent, const int lie, const int chunk)
{
  if (lie == TURNED) {
    const int along = (extent) / TURNED_ROWS / STRIPS(extent), k = i / along * 2 * (SUB_GROUPS / STRIPS(extent));
    const int rows = i % along * STRIPS(extent) * TURNED_ROWS;
    return (Step){rows, k, rows * LINE_BYTES(BK), k * ELEMENT_BYTES};
  }
  const int line = i * LINES_AT_ONCE(extent, lie, chunk), bytes = line * LINE_BYTES(TILE_LINE(extent, lie));
  const uint flip = FLIP(bytes, TILE_LINE(extent, lie));
  if (lie == ACROSS) return (Step){line / BK * LINE_ACROSS(extent), line % BK, bytes, flip};
  return (Step){line, 0, bytes, flip};
}

/* An operand of `limit` rows (columns), its tile of `extent` rows beginning at row `first` and at first_k. `tile`: where
 * the tile lies in a stage. */
INLINE Operand operand_of(
    __global const void *matrix, const long pitch, const int extent, const int lie, const int chunk, const int first,
    const int limit, const int first_k, const uint tile)
{
  const int id = get_local_id(0), elements = TILE_LINE(extent, lie), pieces = LINE_PIECES(extent, lie, chunk);
  int line = id / pieces, x = id % pieces * (PIECE(chunk) / ELEMENT_BYTES); /* x: element of the line */
  if (lie == TURNED) {
    line = id % TURNED_ROWS + id / 32 % STRIPS(extent) * TURNED_ROWS;
    x = id % 32 / TURNED_ROWS + id / 32 / STRIPS(extent) * 2;
  }
  const uint byte = line * LINE_BYTES(elements) + x * ELEMENT_BYTES;
  Operand operand = {(__global const uchar *)matrix, pitch, first + (lie == ACROSS ? x : line), lie == ACROSS ? line : x,
                     limit, tile + (byte ^ FLIP(byte, elements))};
  const int k = first_k + operand.k;
  const int beside = lie == ALONG ? k : operand.row, below = lie == ALONG ? operand.row : k;
  operand.next += below * pitch + beside * (long)ELEMENT_BYTES;
  return operand;
}

/* Bytes of a piece within the operand. `k`: of the block. */
INLINE int bytes_inside(const Operand operand, const Step step, const int lie, const int chunk, const int k, const int K)
{
  const int row = operand.row + step.rows, depth = operand.k + step.k + k;
  const int left = lie == ALONG ? K - depth : operand.limit - row;
  const bool inside = lie == ALONG ? row < operand.limit : depth < K;
  return inside ? min(max(left, 0), PIECE(chunk) / ELEMENT_BYTES) * ELEMENT_BYTES : 0;
}

INLINE __global const uchar *piece_at(const Operand operand, const Step step, const int lie)
{
  const int beside = lie == ALONG ? step.k : step.rows, below = lie == ALONG ? step.rows : step.k;
  return operand.next + below * operand.pitch + beside * ELEMENT_BYTES;
}

INLINE uint place_of(const Operand operand, const Step step, const uint stage)
{
  return (stage + operand.place ^ step.flip) + step.bytes;
}

/* Copy i of the block that begins at k, into `stage`. Outside of the operand it writes zeros. */
INLINE void copy_piece(
    const uint stage, const Operand operand, const int extent, const int lie, const int chunk, const int i, const int k,
    const int K, const bool wanted)
{
  const Step step = step_to(i, extent, lie, chunk);
  const int bytes = bytes_inside(operand, step, lie, chunk, k, K);
  copy_async(place_of(operand, step, stage), piece_at(operand, step, lie), chunk, bytes, wanted);
}

/* Copy c of block `block`, if it is wanted and needs no register. */
INLINE void copy_one(
    const uint tiles, const Operand a, const Operand b, const int c, const int block, const int K, const bool wanted)
{
  const uint stage = tiles + block % STAGES * STAGE_BYTES;
  if (c < COPIES_A) {
    if (CHUNK_A != 2) copy_piece(stage, a, BM, LIE_A, CHUNK_A, c, block * BK, K, wanted);
  } else if (CHUNK_B != 2) {
    copy_piece(stage, b, BN, LIE_B, CHUNK_B, c - COPIES_A, block * BK, K, wanted);
  }
}

#if THROUGH_REGISTERS
/* Reads two elements of 2 bytes; zeros outside of the operand. */
INLINE ushort2 read_pair(const Operand operand, const Step step, const int lie, const int k, const int K)
{
  __global const ushort *from = (__global const ushort *)piece_at(operand, step, lie);
  const int bytes = bytes_inside(operand, step, lie, 2, k, K);
  ushort2 pair = (ushort2)(0);
  if (bytes > 0) pair.s0 = from[0];
  if (bytes > 2) pair.s1 = from[1];
  return pair;
}

INLINE void write_pair(
    __local uchar *tiles, const uint stage, const Operand operand, const Step step, const ushort2 pair)
{
  *(__local uint *)(tiles + place_of(operand, step, stage)) = pair.s0 | (uint)pair.s1 << 16;
}

/* Reads what block `block` has of operands that come through registers. */
INLINE void read_pairs(ushort2 pairs[COPIES], const Operand a, const Operand b, const int block, const int K)
{
  if (CHUNK_A == 2)
    UNROLL for (int c = 0; c < COPIES_A; ++c)
      pairs[c] = read_pair(a, step_to(c, BM, LIE_A, 2), LIE_A, block * BK, K);
  if (CHUNK_B == 2)
    UNROLL for (int c = COPIES_A; c < COPIES; ++c)
      pairs[c] = read_pair(b, step_to(c - COPIES_A, BN, LIE_B, 2), LIE_B, block * BK, K);
}

INLINE void write_pairs(
    __local uchar *tiles, const Operand a, const Operand b, const ushort2 pairs[COPIES], const int block)
{
  const uint stage = block % STAGES * STAGE_BYTES;
  if (CHUNK_A == 2)
    UNROLL for (int c = 0; c < COPIES_A; ++c) write_pair(tiles, stage, a, step_to(c, BM, LIE_A, 2), pairs[c]);
  if (CHUNK_B == 2)
    UNROLL for (int c = COPIES_A; c < COPIES; ++c)
      write_pair(tiles, stage, b, step_to(c - COPIES_A, BN, LIE_B, 2), pairs[c]);
}
#else
#define read_pairs(pairs, a, b, block, K) ((void)0)
#define write_pairs(tiles, a, b, pairs, block) ((void)0)
#endif

INLINE void copy_all(
    const uint tiles, const Operand a, const Operand b, const int block, const int K, const bool wanted)
{
  UNROLL for (int c = 0; c < COPIES; ++c) copy_one(tiles, a, b, c, block, K, wanted);
}

/* Closes the group of a block's copies and moves on to the next block. */
INLINE void block_copied(Operand *a, Operand *b)
{
  copies_commit();
  a->next += LIE_A == ALONG ? BK * ELEMENT_BYTES : BK * a->pitch;
  b->next += LIE_B == ALONG ? BK * ELEMENT_BYTES : BK * b->pitch;
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

/* sum = A B for the sub-group's SGM x SGN of the tile, at `row` and `column` of it. Blocks past the end of K are not
 * copied; their groups of copies are empty. */
INLINE void multiply_tile(
    acc_t sum[MT][4 * NT], __local uchar *tiles, Operand a, Operand b, const int K, const int row, const int column)
{
  const uint tile0 = local_address(tiles);
  const int blocks = (K + BK - 1) / BK;
#if THROUGH_REGISTERS
  ushort2 pairs[COPIES];
#endif
  clear(sum);
#if PARTS
  acc_t acc[MT][4 * NT];
  clear(acc);
#endif
  int filled = 0;
  for (; filled < STAGES - 1; ++filled) {
    if (filled < blocks) {
      read_pairs(pairs, a, b, filled, K);
      copy_all(tile0, a, b, filled, K, true);
      write_pairs(tiles, a, b, pairs, filled);
    }
    block_copied(&a, &b);
  }
  for (int block = 0; block < blocks; ++block, ++filled) {
    const int stage = block % STAGES * STAGE_BYTES;
    const bool wanted = filled < blocks;
    copies_wait(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (wanted) read_pairs(pairs, a, b, filled, K);
#if PARTS
    copy_all(tile0, a, b, filled, K, wanted);
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
          if (c * STEPS * MT / COPIES == step * MT + i) copy_one(tile0, a, b, c, filled, K, wanted);
      }
    }
#endif
    if (wanted) write_pairs(tiles, a, b, pairs, filled);
    block_copied(&a, &b);
  }
}
