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
 * Macros: BM BN, multiples of SGM, SGN and of lines across K; SGM, a multiple of 16; SGN, a multiple of 8 LOADED_B;
 * STAGES, 2 or more; GROUP (tile_order.h); CHUNK_A CHUNK_B (mma_copies.h); those of mma_fragments.h.
 * Technique: CUTLASS's multistage pipeline for sm_80.
 */
#include "include/tile_order.h"
#include "nvidia/mma_copies.h"

#ifndef STAGES
#error "mma_ring.h needs STAGES"
#endif
#define MT (SGM / 16)
#define NT (SGN / 8)
#define ROUND 2 /* blocks of parts that matrix units sum from zero: they truncate as they accumulate */

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
  ushort2 pairs[COPIES]; /* of operands that come through registers */
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
