/* amx, first step: copies an operand into panels of tiles (amx_tiles.h), with zeros beyond the matrix.
 *
 *      lines: rows of A, columns of B              panel p: lines p*32 .. p*32 + 31
 *    +----------+----------+                       first KC steps of panel 0, then of panel 1, .., then the
 *    | panel 0  | panel 1  | K                     next KC steps of panel 0. Of each step two tiles: lines
 *    +----------+----------+                       0-15, lines 16-31
 *                                                  a tile of A: line after line, 64 bytes along K
 *    work-group (q, r, z): steps r*chunk ..,       a tile of B: word after word along K, 16 lines each
 *    of panels q*span ..
 *
 * An operand that is stored in the tile's order is copied; the other one is turned: 16 x 16 words in 16 registers.
 *
 * With CHECKED 1 plan[1] becomes 1 if a number is so small that the product needs another kernel (amx.cl).
 */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/amx_tiles.h"

#if !defined(KC) || !defined(CHECKED)
#error "amx_panels.h needs KC CHECKED"
#endif

typedef uint16 WORDS;
typedef WORDS LOOSE_WORDS ALIGNED(1);
typedef ushort16 LOOSE_SHORTS ALIGNED(1);
typedef uchar16 LOOSE_BYTES ALIGNED(1);

#define STEPS_OF(k) (((k) + STEP - 1) / STEP)
/* Bytes before a step of panel `panel`, of `count` panels. Chunks of KC steps follow each other, each with all panels. */
INLINE long place_of(const int panel, const int step, const int count, const int steps)
{
  const int from = step / KC * KC, length = min(KC, steps - from);
  return ((long)from * count + (long)panel * length + (step - from)) * 2 * TILE_BYTES;
}
#define PANELS_OF(length) (((length) + BLOCK - 1) / BLOCK)

#define PACK_ARGS                                                                                  \
  GEMM_ARGS, const int chunk, const int span, __global uchar *panels, const long stack, __global int *plan
#define SMALL 0x2600 /* the upper half of 2^-51 */
#define WIDENED(type, p) __builtin_convertvector(*(__global const type *)(p), WORDS)

/* One stage of turning a matrix of 16 x 16: exchanges blocks of `d` across the diagonal. */
#define EXCHANGE(v, d, low, high)                              \
  UNROLL for (int r = 0; r < TILE; ++r)                        \
    if (!(r & (d))) {                                          \
      const WORDS x = v[r], y = v[r + (d)];                    \
      v[r] = low;                                              \
      v[r + (d)] = high;                                       \
    }
#define PICK(...) __builtin_shufflevector(x, y, __VA_ARGS__)

INLINE void turn(WORDS v[TILE])
{
  EXCHANGE(v, 1, PICK(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
           PICK(1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
  EXCHANGE(v, 2, PICK(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
           PICK(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
  EXCHANGE(v, 4, PICK(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
           PICK(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
  EXCHANGE(v, 8, PICK(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
           PICK(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
}

/* 16 words, each of WIDTH rows one after the other. */
INLINE WORDS joined(__global const uchar *from, const long row)
{
#if IS(A_TYPE) == is_bfloat16
  return WIDENED(LOOSE_SHORTS, from) | WIDENED(LOOSE_SHORTS, from + row) << 16;
#else
  return WIDENED(LOOSE_BYTES, from) | WIDENED(LOOSE_BYTES, from + row) << 8 |
         WIDENED(LOOSE_BYTES, from + 2 * row) << 16 | WIDENED(LOOSE_BYTES, from + 3 * row) << 24;
#endif
}

/* The least of |x| - 1, in bits, of both halves of each word: zero becomes the greatest number. */
INLINE WORDS least_of(const WORDS least, const WORDS x)
{
  const WORDS low = (x & 0x7fff) - 1, high = (x >> 16 & 0x7fff) - 1;
  const WORDS both = low < high ? low : high;
  return both < least ? both : least;
}

/* A tile within the matrix. along: it is stored along K; turned: its words must change places. */
INLINE int pack_tile(
    __global uchar *to, __global const uchar *from, const long row, const bool along, const bool turned)
{
  WORDS v[TILE], least = (WORDS)(0xffffffff);
  UNROLL for (int r = 0; r < TILE; ++r)
    v[r] = along ? *(__global const LOOSE_WORDS *)(from + r * row) : joined(from + r * WIDTH * row, row);
#if CHECKED
  UNROLL for (int r = 0; r < TILE; ++r) least = least_of(least, v[r]);
#endif
  if (turned) turn(v);
  UNROLL for (int r = 0; r < TILE; ++r) ((__global WORDS *)to)[r] = v[r];
  int small = 0;
#if CHECKED
  UNROLL for (int r = 0; r < TILE; ++r) small |= least[r] < SMALL - 1;
#endif
  return small;
}

/* A tile of which only some lines and numbers along K are within the matrix. line, next: bytes from one line to the
 * next, and from one number along K to the next. */
INLINE int pack_edge(
    __global uchar *to, __global const uchar *from, const long line, const long next, const int lines,
    const int numbers, const bool by_words)
{
  int small = 0;
  for (int r = 0; r < TILE; ++r) ((__global WORDS *)to)[r] = (WORDS)(0);
  for (int i = 0; i < lines; ++i)
    for (int k = 0; k < numbers; ++k) {
      const A_T x = *(__global const A_T *)(from + i * line + k * next);
      const int at = by_words ? k / WIDTH * STEP + i * WIDTH + k % WIDTH : i * STEP + k;
      ((__global A_T *)to)[at] = x;
#if CHECKED
      small |= (uint)(x & 0x7fff) - 1 < SMALL - 1;
#endif
    }
  return small;
}

/* `length` lines of the operand `from`, `chunk` steps of `span` panels of them. ld: bytes. */
INLINE void pack_panels(
    __global uchar *panels, __global const uchar *from, const long ld, const int length, const int K, const int chunk,
    const int span, const bool along, const bool by_words, __global int *plan)
{
  const int size = sizeof(A_T), first = get_group_id(0) * span * BLOCK, end = min(length, first + span * BLOCK);
  const int begin = get_group_id(1) * chunk, last = min(STEPS_OF(K), begin + chunk);
  const long line = along ? ld : size, next = along ? size : ld;
  int small = 0;
  for (int step = begin; step < last; ++step)
    for (int i = first; i < end; i += TILE) {
      __global uchar *to =
          panels + place_of(i / BLOCK, step, PANELS_OF(length), STEPS_OF(K)) + i / TILE % 2 * TILE_BYTES;
      __global const uchar *at = from + i * line + (long)step * STEP * next;
      if (i + TILE <= length && (step + 1) * STEP <= K) small |= pack_tile(to, at, ld, along, along == by_words);
      else small |= pack_edge(to, at, line, next, min(TILE, length - i), min(STEP, K - step * STEP), by_words);
      if (i + TILE >= length && i / TILE % 2 == 0) pack_edge(to + TILE_BYTES, at, 0, 0, 0, 0, by_words);
    }
#if CHECKED
  if (small) plan[1] = 1;
#endif
}

__kernel ONE_WIDE_ITEM void amx_pack_a(PACK_ARGS)
{
  GEMM_BEGIN;
  panels += BATCH_ENTRY * stack;
  pack_panels(panels, (__global const uchar *)a, lda * sizeof(A_T), M, K, chunk, span, !TRANS_A, false, plan);
}

__kernel ONE_WIDE_ITEM void amx_pack_b(PACK_ARGS)
{
  GEMM_BEGIN;
  panels += BATCH_ENTRY * stack;
  pack_panels(panels, (__global const uchar *)b, ldb * sizeof(B_T), N, K, chunk, span, TRANS_B, true, plan);
}
