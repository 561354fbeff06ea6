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

/* The pieces of an operand that one work-item copies, in their order. `next` walks from piece to piece, so that no
 * addresses are held in registers. */
typedef struct {
  __global const uchar *next; /* the piece that is copied next */
  long pitch; /* leading dimension in bytes */
  int rows_left, k_left; /* from the first piece of the block to the end of the operand */
  uint place; /* of the first piece in a stage */
} Operand;

/* From the first piece of a work-item to another: rows, k, bytes in local memory, and bits of the place that change.
 * All are constants. */
typedef struct {
  int rows, k;
  uint bytes, flip;
} Step;

INLINE Step step_to(const int i, const int extent, const int lie, const int chunk)
{
  if (lie == TURNED) {
    const int along = extent / TURNED_ROWS / STRIPS(extent), k = i / along * 2 * (SUB_GROUPS / STRIPS(extent));
    const int rows = i % along * STRIPS(extent) * TURNED_ROWS;
    return (Step){rows, k, rows * LINE_BYTES(BK), k * ELEMENT_BYTES};
  }
  const int line = i * LINES_AT_ONCE(extent, lie, chunk), bytes = line * LINE_BYTES(TILE_LINE(extent, lie));
  const uint flip = FLIP(bytes, TILE_LINE(extent, lie));
  if (lie == ACROSS) return (Step){line / BK * LINE_ACROSS(extent), line % BK, bytes, flip};
  return (Step){line, 0, bytes, flip};
}

/* An operand of `limit` rows (columns), of which rows from `row` on and k = first_k .. K - 1 are multiplied. `extent`:
 * rows of its tile, which lies at byte `tile` of a stage. */
INLINE Operand operand_of(
    __global const void *matrix, const long pitch, const int extent, const int lie, const int chunk, int row,
    const int limit, int k, const int K, const uint tile)
{
  const int id = get_local_id(0), elements = TILE_LINE(extent, lie), pieces = LINE_PIECES(extent, lie, chunk);
  int line = id / pieces, x = id % pieces * (PIECE(chunk) / ELEMENT_BYTES); /* x: element of the line */
  if (lie == TURNED) {
    line = id % TURNED_ROWS + id / 32 % STRIPS(extent) * TURNED_ROWS;
    x = id % 32 / TURNED_ROWS + id / 32 / STRIPS(extent) * 2;
  }
  const uint byte = line * LINE_BYTES(elements) + x * ELEMENT_BYTES;
  row += lie == ACROSS ? x : line;
  k += lie == ACROSS ? line : x;
  const long at = lie == ALONG ? row * pitch + k * (long)ELEMENT_BYTES : k * pitch + row * (long)ELEMENT_BYTES;
  return (Operand){(__global const uchar *)matrix + at, pitch, limit - row, K - k, tile + (byte ^ FLIP(byte, elements))};
}

/* Whether any row of a piece is within the operand. Other pieces are not copied: what lies there only reaches rows and
 * columns that are not stored. */
INLINE bool has_rows(const Operand *operand, const Step step) { return operand->rows_left > step.rows; }

/* Bytes of a piece within the operand; the others must be zeros, or be of rows outside. */
INLINE int bytes_inside(const Operand *operand, const Step step, const int lie, const int chunk)
{
  const int rows = operand->rows_left - step.rows, k = operand->k_left - step.k;
  if (PIECE(chunk) == ELEMENT_BYTES) return k > 0 ? ELEMENT_BYTES : 0;
  const int wide = min(max(lie == ALONG ? k : rows, 0), PIECE(chunk) / ELEMENT_BYTES) * ELEMENT_BYTES;
  return lie == ALONG || k > 0 ? wide : 0;
}

/* Walks on from piece i to the next one, which may be the first of the next block. */
INLINE void walk_on(Operand *operand, const int i, const int extent, const int lie, const int chunk)
{
  const bool last = i + 1 == COPIES_OF(extent, chunk);
  const Step from = step_to(i, extent, lie, chunk), to = step_to(last ? 0 : i + 1, extent, lie, chunk);
  const int rows = to.rows - from.rows, k = to.k - from.k + (last ? BK : 0);
  const int below = lie == ALONG ? rows : k, beside = lie == ALONG ? k : rows;
  operand->next += below * operand->pitch + beside * ELEMENT_BYTES;
}

INLINE uint place_of(const Operand *operand, const Step step, const uint stage)
{
  return (stage + operand->place ^ step.flip) + step.bytes;
}

/* Copies piece i into `stage`, if it is wanted. Past the end of K it writes zeros. */
INLINE void copy_piece(
    Operand *operand, const uint stage, const int i, const int extent, const int lie, const int chunk, const bool wanted)
{
  const Step step = step_to(i, extent, lie, chunk);
  const int bytes = bytes_inside(operand, step, lie, chunk);
  copy_async(place_of(operand, step, stage), operand->next, chunk, bytes, wanted && has_rows(operand, step));
  walk_on(operand, i, extent, lie, chunk);
}

/* Copy c of a block, if it is wanted and needs no register. */
INLINE void copy_one(Operand *a, Operand *b, const uint stage, const int c, const bool wanted)
{
  if (c < COPIES_A) {
    if (CHUNK_A != 2) copy_piece(a, stage, c, BM, LIE_A, CHUNK_A, wanted);
  } else if (CHUNK_B != 2) {
    copy_piece(b, stage, c - COPIES_A, BN, LIE_B, CHUNK_B, wanted);
  }
}

INLINE void copy_all(Operand *a, Operand *b, const uint stage, const bool wanted)
{
  UNROLL for (int c = 0; c < COPIES; ++c) copy_one(a, b, stage, c, wanted);
}

#if THROUGH_REGISTERS
/* Reads two elements of 2 bytes, piece i. Outside of the operand they are zeros. */
INLINE ushort2 read_pair(Operand *operand, const int i, const int extent, const int lie)
{
  const Step step = step_to(i, extent, lie, 2);
  const int bytes = has_rows(operand, step) ? bytes_inside(operand, step, lie, 2) : 0;
  __global const ushort *from = (__global const ushort *)operand->next;
  ushort2 pair = (ushort2)(0);
  if (bytes > 0) pair.s0 = from[0];
  if (bytes > 2) pair.s1 = from[1];
  walk_on(operand, i, extent, lie, 2);
  return pair;
}

INLINE void write_pair(__local uchar *tiles, const uint place, const ushort2 pair)
{
  *(__local uint *)(tiles + place) = pair.s0 | (uint)pair.s1 << 16;
}

/* Reads what a block has of operands that come through registers. */
INLINE void read_pairs(ushort2 pairs[COPIES], Operand *a, Operand *b)
{
  if (CHUNK_A == 2)
    UNROLL for (int c = 0; c < COPIES_A; ++c) pairs[c] = read_pair(a, c, BM, LIE_A);
  if (CHUNK_B == 2)
    UNROLL for (int c = COPIES_A; c < COPIES; ++c) pairs[c] = read_pair(b, c - COPIES_A, BN, LIE_B);
}

INLINE void write_pairs(
    __local uchar *tiles, const uint stage, const Operand *a, const Operand *b, const ushort2 pairs[COPIES])
{
  if (CHUNK_A == 2)
    UNROLL for (int c = 0; c < COPIES_A; ++c)
      write_pair(tiles, place_of(a, step_to(c, BM, LIE_A, 2), stage), pairs[c]);
  if (CHUNK_B == 2)
    UNROLL for (int c = COPIES_A; c < COPIES; ++c)
      write_pair(tiles, place_of(b, step_to(c - COPIES_A, BN, LIE_B, 2), stage), pairs[c]);
}
#else
#define read_pairs(pairs, a, b) ((void)0)
#define write_pairs(tiles, stage, a, b, pairs) ((void)0)
#endif

/* Goes on to the next block. To the compiler rows_left seems to change, or it would hold the result of each piece's test
 * of rows in a register of its own. */
INLINE void next_block(Operand *operand)
{
  operand->k_left -= BK;
  asm volatile("" : "+r"(operand->rows_left));
}

/* Closes the group of a block's copies. */
INLINE void block_copied(Operand *a, Operand *b)
{
  copies_commit();
  next_block(a);
  next_block(b);
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

/* sum = A B for the sub-group's SGM x SGN of the tile, at `row` and `column` of it, over `depth` of K. Blocks past the
 * end of K are not copied; their groups of copies are empty. */
INLINE void multiply_tile(
    acc_t sum[MT][4 * NT], __local uchar *tiles, Operand a, Operand b, const int depth, const int row, const int column)
{
  const uint tile0 = local_address(tiles);
  const int blocks = (depth + BK - 1) / BK;
#if THROUGH_REGISTERS
  ushort2 pairs[COPIES];
#endif
  clear(sum);
#if PARTS
  acc_t acc[MT][4 * NT];
  clear(acc);
#endif
  int filled = 0;
  ONCE for (; filled < STAGES - 1; ++filled) {
    if (filled < blocks) {
      read_pairs(pairs, &a, &b);
      copy_all(&a, &b, tile0 + filled * STAGE_BYTES, true);
      write_pairs(tiles, filled * STAGE_BYTES, &a, &b, pairs);
    }
    block_copied(&a, &b);
  }
  for (int block = 0; block < blocks; ++block, ++filled) {
    const int stage = block % STAGES * STAGE_BYTES, next = filled % STAGES * STAGE_BYTES;
    const bool wanted = filled < blocks;
    copies_wait(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (wanted) read_pairs(pairs, &a, &b);
#if PARTS
    copy_all(&a, &b, tile0 + next, wanted);
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
          if (c * STEPS * MT / COPIES == step * MT + i) copy_one(&a, &b, tile0 + next, c, wanted);
      }
    }
#endif
    if (wanted) write_pairs(tiles, next, &a, &b, pairs);
    block_copied(&a, &b);
  }
}
