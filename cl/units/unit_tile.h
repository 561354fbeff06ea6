/* Tiles of words for matrix units: from an operand in device memory, through registers, to local memory.
 *
 * A word is WORD_K neighbours along K of one row of A or column of B: what a work-item passes to a matrix
 * instruction. Here x numbers the rows of A or the columns of B. In every layout of the operand, word w of x, with
 * elements k = WORD_K w .. WORD_K w + WORD_K - 1, is in local memory at
 *
 *   w * width + (x ^ w * SWIZZLE % 16)
 *
 * The work-items of an instruction, each with its own x, read neighbouring words. Those that store words of one x
 * use different banks. A work-item loads and stores cells:
 *
 *   along K   a cell is one word: one access if the operand is wide, else WORD_K accesses of one element.
 *             Neighbouring work-items take neighbouring words of one x
 *   across K  a cell is the words of CELL_X neighbouring x: WORD_K accesses of CELL_X elements (4 bytes if the
 *             operand is wide), shuffled in registers. Neighbouring work-items take neighbouring cells at one k
 *
 * Elements beyond an edge are not read; the tile has zeros there. Elements are moved as bits.
 *
 * Macros: LANES, the work-items of a sub-group; WORD_K: WORD_K * ELEMENT_BYTES is 4, 8 or 16; BM BN BK; SGM SGN, a
 * sub-group's tile;
 *   WIDE_A WIDE_B   0: any alignment. 1, along K: each row or column starts on a multiple of a word, and K is a
 *                   multiple of WORD_K. 1, across K: each k starts on a multiple of 4 bytes, and so does its end
 * BM and BN are multiples of 16. The number of cells divides WORK_ITEMS or is a multiple of it.
 */
#include "include/types.h"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(SGM) || !defined(SGN) || !defined(LANES) || \
    !defined(WORD_K) || !defined(WIDE_A) || !defined(WIDE_B)
#error "unit_tile.h needs BM BN BK SGM SGN LANES WORD_K WIDE_A WIDE_B"
#endif

/* How a matrix unit treats an element type, from A_TYPE and B_TYPE, which one instruction multiplies:
 *
 *   TYPE_CODE       1 float16, 2 bfloat16, 3 float32, 4 float64, 5 8-bit integers
 *   ELEMENT_BYTES   1, 2, 4, 8
 *   SIGNED_A SIGNED_B   0, 1, for 8-bit integers */
#define code_float16 1
#define code_bfloat16 2
#define code_float32 3
#define code_float64 4
#define code_int8 5
#define code_uint8 5
#define TYPE_CODE CAT(code_, A_TYPE)
#define ELEMENT_BYTES BYTES_OF(A_TYPE)

#define signed_int8 1
#define signed_uint8 0
#define SIGNED_A CAT(signed_, A_TYPE)
#define SIGNED_B CAT(signed_, B_TYPE)

#define WORD_UINTS (WORD_K * ELEMENT_BYTES / 4)
#if WORD_K * ELEMENT_BYTES == 4
typedef uint word_t;
#define WORD(u) ((u)[0])
#elif WORD_K * ELEMENT_BYTES == 8
typedef uint2 word_t;
#define WORD(u) ((uint2)((u)[0], (u)[1]))
#else
typedef uint4 word_t;
#define WORD(u) ((uint4)((u)[0], (u)[1], (u)[2], (u)[3]))
#endif

#define WORK_ITEMS (LANES * (BM / SGM) * (BN / SGN))
/* rows of A or columns of B that one sub-group fills at the same time */
#define SWIZZLE (LANES * WORD_K > BK ? LANES * WORD_K / BK : 1)
#define WORDS (BK / WORD_K) /* of one x of a tile */
#define STAGE (WORDS * (BM + BN)) /* words of both tiles */
#define PLACE(width, w, x) ((w) * (width) + ((x) ^ (w) * SWIZZLE % 16))
#define CELL_X(across, wide) ((across) && (wide) && ELEMENT_BYTES < 4 ? 4 / ELEMENT_BYTES : 1)
/* Cells side by side, all cells of a tile, and passes of all work-items over it. */
#define CELLS_X(width, across, wide) ((across) ? (width) / CELL_X(across, wide) : WORDS)
#define CELLS(width, across, wide) ((width) * WORDS / CELL_X(across, wide))
#define PASSES(width, across, wide) ((CELLS(width, across, wide) + WORK_ITEMS - 1) / WORK_ITEMS)
#define HELD_UINTS(width, across, wide) \
  (PASSES(width, across, wide) * CELL_X(across, wide) * WORD_UINTS)

/* A work-item's position in an operand. */
typedef struct {
  __global const uchar *at; /* the first element of its first cell in the tile that is fetched next */
  long ld;                  /* leading dimension in bytes */
  int x_left, k_left;       /* elements from there to the edges */
  int x, word;              /* its first cell in a tile; x is -1 if it has none */
} Walk;

INLINE void begin_walk(
    Walk *w, __global const uchar *origin, const long ld, const int x_left, const int k_left, const int width,
    const int across, const int wide)
{
  const int id = get_local_id(0);
  const int cells = CELLS_X(width, across, wide);
  const int x = across ? id % cells * CELL_X(across, wide) : id / cells;
  const int word = across ? id / cells : id % cells;
  const bool idle = x >= width || word >= WORDS;
  w->ld = ld * ELEMENT_BYTES;
  w->at = origin + (across ? word * WORD_K * w->ld + x * ELEMENT_BYTES
                           : x * w->ld + word * WORD_K * ELEMENT_BYTES);
  w->x_left = idle ? 0 : x_left - x;
  w->k_left = k_left - word * WORD_K;
  w->x = idle ? -1 : x;
  w->word = word;
}

/* CELL_X elements as bits. */
INLINE uint read_bits(__global const uchar *p, const int elements)
{
  if (elements * ELEMENT_BYTES == 4) return *(__global const uint *)p;
  if (ELEMENT_BYTES == 2) return *(__global const ushort *)p;
  return *p;
}

/* Transposes WORD_K lines of `cell` elements, one for each k, to `cell` words. */
INLINE void shuffle_cell(uint *words, const uint *lines, const int cell)
{
#if ELEMENT_BYTES < 4
  const int bits = 8 * ELEMENT_BYTES, mask = (1 << bits) - 1;
  UNROLL for (int c = 0; c < cell; ++c)
    UNROLL for (int u = 0; u < WORD_UINTS; ++u) {
      uint word = 0;
      UNROLL for (int e = 0; e < 4 / ELEMENT_BYTES; ++e)
        word |= (lines[u * (4 / ELEMENT_BYTES) + e] >> c * bits & mask) << e * bits;
      words[c * WORD_UINTS + u] = word;
    }
#else
  UNROLL for (int u = 0; u < WORD_UINTS; ++u) words[u] = lines[u];
#endif
}

INLINE void read_cell(
    uint *held, __global const uchar *p, const long ld, const bool inside, const int k_left, const int across,
    const int wide)
{
  if (WORD_K == 1 || (wide && !across)) {
    union { word_t word; uint u[WORD_UINTS]; } v;
    v.word = inside && k_left > 0 ? *(__global const word_t *)p : (word_t)(0);
    UNROLL for (int u = 0; u < WORD_UINTS; ++u) held[u] = v.u[u];
    return;
  }
  uint lines[WORD_K];
  UNROLL for (int k = 0; k < WORD_K; ++k) {
    __global const uchar *from = p + k * (across ? ld : ELEMENT_BYTES);
    lines[k] = inside && k < k_left ? read_bits(from, CELL_X(across, wide)) : 0;
  }
  shuffle_cell(held, lines, CELL_X(across, wide));
}

/* Starts the loads of a tile and moves to the next tile. */
INLINE void fetch(uint *held, Walk *w, const int width, const int across, const int wide)
{
  const int cell = CELL_X(across, wide), step = WORK_ITEMS / CELLS_X(width, across, wide);
  UNROLL for (int pass = 0; pass < PASSES(width, across, wide); ++pass) {
    const int x = across ? 0 : pass * step, k = across ? pass * step * WORD_K : 0;
    read_cell(held + pass * cell * WORD_UINTS, w->at + (across ? k : x) * w->ld, w->ld, x < w->x_left,
              w->k_left - k, across, wide);
  }
  w->at += across ? BK * w->ld : BK * ELEMENT_BYTES;
  w->k_left -= BK;
}

/* Stores what was fetched in its tile. */
INLINE void land(
    __local word_t *tile, const uint *held, const Walk *w, const int width, const int across, const int wide)
{
  const int cell = CELL_X(across, wide), step = WORK_ITEMS / CELLS_X(width, across, wide);
  if (CELLS(width, across, wide) < WORK_ITEMS && w->x < 0) return;
  UNROLL for (int pass = 0; pass < PASSES(width, across, wide); ++pass)
    UNROLL for (int c = 0; c < cell; ++c) {
      const int word = w->word + (across ? pass * step : 0), x = w->x + (across ? c : pass * step);
      tile[PLACE(width, word, x)] = WORD(held + (pass * cell + c) * WORD_UINTS);
    }
}
