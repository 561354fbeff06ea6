/* mma_copies: the copies of mma_ring.h, from an operand to its tile in a stage.
 *
 * A tile lies in lines. Along K, a line holds BK elements of one row of A (column of B). Across K, it holds LINE_ACROSS
 * rows (columns) at one k. A work-item copies pieces of CHUNK bytes. Neighbouring work-items copy neighbouring pieces
 * of a line.
 *
 *     along K                         across K                          turned: an operand stored across K lies along K
 *          k ->                            row ->                               k ->
 *     row  piece piece piece ..       k    piece piece piece ..         row     work-items 0 .. 15 copy single elements
 *     row  piece ..                   k    piece ..                      |      of 16 rows at one k, 16 .. 31 those at
 *                                                                        v      the next k
 *
 * Elements of 2 bytes in rows that begin on no multiple of 4 bytes (CHUNK 2) come through registers: pairs of them are
 * read before a block is multiplied and written to local memory after it.
 *
 * Macros: CHUNK_A CHUNK_B, bytes of a copy: 16, 8, 4, 2, of which rows of the operand begin on multiples; of a turned
 * operand the size of an element. BM BN SGM SGN (mma_ring.h); those of mma_fragments.h. WORK_ITEMS is a multiple of a line's pieces and divides a
 * tile's.
 */
#include "nvidia/mma_fragments.h"

#if !defined(SGM) || !defined(SGN) || !defined(CHUNK_A) || !defined(CHUNK_B)
#error "mma_copies.h needs SGM SGN CHUNK_A CHUNK_B"
#endif
#define SG_COLUMNS (BN / SGN)
#define SUB_GROUPS (BM / SGM * SG_COLUMNS)
#define WORK_ITEMS (32 * SUB_GROUPS)
#define TILE_LINE(extent, lie) ((lie) == ACROSS ? LINE_ACROSS(extent) : BK) /* elements of a line */
#define TILE_LINES(extent, lie) ((lie) == ACROSS ? BK * ((extent) / LINE_ACROSS(extent)) : (extent)) /* lines */
#define TILE_BYTES(extent, lie) (TILE_LINES(extent, lie) * LINE_BYTES(TILE_LINE(extent, lie)))
#define PIECE(chunk) ((chunk) == 2 ? 4 : (chunk)) /* bytes in local memory */
#define LINE_PIECES(extent, lie, chunk) (TILE_LINE(extent, lie) * ELEMENT_BYTES / PIECE(chunk))
#define LINES_AT_ONCE(extent, lie, chunk) (WORK_ITEMS / LINE_PIECES(extent, lie, chunk))
#define COPIES_OF(extent, chunk) ((extent) * BK * ELEMENT_BYTES / PIECE(chunk) / WORK_ITEMS)
#define COPIES_A COPIES_OF(BM, CHUNK_A)
#define COPIES (COPIES_A + COPIES_OF(BN, CHUNK_B))
#define TURNED_ROWS 16 /* rows of a turned tile that a sub-group copies at once, at two values of k */
#define SMALLER_OF(x, y) ((x) < (y) ? (x) : (y))
#define STRIPS(extent) SMALLER_OF((extent) / TURNED_ROWS, SUB_GROUPS) /* of TURNED_ROWS, copied at once */
#define TILE_A TILE_BYTES(BM, LIE_A)
#define STAGE_BYTES (TILE_A + TILE_BYTES(BN, LIE_B))

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

/* An operand of `limit` rows (columns), of which rows from `row` on and k .. K - 1 are multiplied. `extent`:
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
  const uint place = tile + (byte ^ FLIP(byte, elements));
  return (Operand){(__global const uchar *)matrix + at, pitch, limit - row, K - k, place};
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
    Operand *operand, const uint stage, const int i, const int extent, const int lie, const int chunk,
    const bool wanted)
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

/* Goes on to the next block. To the compiler rows_left seems to change. Otherwise it would hold the result of each
 * piece's test of rows in a register of its own. */
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
