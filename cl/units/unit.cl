/* unit: out = A B by a vendor's matrix instructions, from tiles of words in local memory.
 *
 *                  BN                     fetch    start loading the next tiles into registers
 *            +---+-------+                multiply for each instruction along BK: read fragments of A and B
 *            | B |   #   | BK                      from local memory, then compute all their products
 *            +---+-------+                land     store the next tiles in the other half of local memory; barrier
 *       BK
 *    +-----+ +---+-------+                A work-group computes BM x BN, each of its sub-groups SGM x SGN, in
 *    | A   | |   |  out  |                pieces of UNIT_M x UNIT_N, the result of one instruction. The file of
 * BM |  #  | |   |   x   |                the instruction draws how its elements lie in registers
 *    +-----+ +---+-------+
 *
 * One barrier in each step is enough: the half that is overwritten was last read before the previous barrier.
 *
 * A program has the header of its instruction (mfma.h, wmma.h, dpas.h) before this file, which has
 *   UNIT_M UNIT_N UNIT_WORDS    rows, columns and words along K of an instruction
 *   a_frag b_frag d_frag        a work-item's part of the operands and of the result
 *   READ_A(to, tile, width, word, x, lane), READ_B   reads its part of the operand from (word, x) of a tile on
 *   MULTIPLY(d, a, b)           d += a b; used only in the kernel function itself
 *   D_ELEMENTS, D_ROW(e, lane), D_COLUMN(e, lane)   row and column of element e of d
 *   UNIT_ATTRIBUTES             attributes of the kernel
 * where `lane` is a work-item's place in its sub-group.
 *
 * Macros: those of that header, of unit_tile.h and tile_order.h; and
 *   SPLIT    0: the kernel stores out. 1: split-K in ranges of k_range, one for each work-group in dimension 1 of
 *            the NDRange. Partial sums go to `partial`, range after range of a tile, and split_k.cl adds them
 * Dimension 0 of the NDRange has WORK_ITEMS for each tile. k_range is a multiple of BK.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "include/tile_order.h"
#include "units/unit_tile.h"

#ifndef SPLIT
#error "unit.cl needs SPLIT"
#endif
#define SG_COLUMNS (BN / SGN)
#define MT (SGM / UNIT_M)
#define NT (SGN / UNIT_N)
#define ACROSS_A TRANS_A
#define ACROSS_B !TRANS_B

__kernel UNIT_ATTRIBUTES WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_unit(
    GEMM_ARGS, const int k_range, __global ACC_T *partial)
{
  __local word_t tiles[2 * STAGE];
  GEMM_BEGIN;
  const int lane = get_local_id(0) % LANES, sub_group = get_local_id(0) / LANES;
  const int row = sub_group / SG_COLUMNS * SGM, column = sub_group % SG_COLUMNS * SGN;
  const int2 origin = tile_at(get_group_id(0), (M + BM - 1) / BM, (N + BN - 1) / BN) * (int2)(BM, BN);
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0;
  const int depth = SPLIT ? min(K - k0, k_range) : K;

  Walk walk_a, walk_b;
  begin_walk(&walk_a, (__global const uchar *)(a + A_INDEX(origin.x, k0, lda)), lda, M - origin.x, depth, BM,
             ACROSS_A, WIDE_A);
  begin_walk(&walk_b, (__global const uchar *)(b + B_INDEX(k0, origin.y, ldb)), ldb, N - origin.y, depth, BN,
             ACROSS_B, WIDE_B);
  uint held_a[HELD_UINTS(BM, ACROSS_A, WIDE_A)], held_b[HELD_UINTS(BN, ACROSS_B, WIDE_B)];
  d_frag acc[MT][NT];
  UNROLL for (int i = 0; i < MT; ++i) UNROLL for (int j = 0; j < NT; ++j) acc[i][j] = 0;

  fetch(held_a, &walk_a, BM, ACROSS_A, WIDE_A);
  fetch(held_b, &walk_b, BN, ACROSS_B, WIDE_B);
  land(tiles, held_a, &walk_a, BM, ACROSS_A, WIDE_A);
  land(tiles + WORDS * BM, held_b, &walk_b, BN, ACROSS_B, WIDE_B);
  barrier(CLK_LOCAL_MEM_FENCE);
  int now = 0;
  for (int k = 0; k < depth; k += BK) {
    __local const word_t *tile_a = tiles + now, *tile_b = tile_a + WORDS * BM;
    fetch(held_a, &walk_a, BM, ACROSS_A, WIDE_A);
    fetch(held_b, &walk_b, BN, ACROSS_B, WIDE_B);
    UNROLL for (int word = 0; word < WORDS; word += UNIT_WORDS) {
      a_frag fa[MT];
      b_frag fb[NT];
      UNROLL for (int i = 0; i < MT; ++i) READ_A(fa[i], tile_a, BM, word, row + i * UNIT_M, lane);
      UNROLL for (int j = 0; j < NT; ++j) READ_B(fb[j], tile_b, BN, word, column + j * UNIT_N, lane);
      UNROLL for (int i = 0; i < MT; ++i)
        UNROLL for (int j = 0; j < NT; ++j) MULTIPLY(acc[i][j], fa[i], fb[j]);
    }
    now = STAGE - now;
    land(tiles + now, held_a, &walk_a, BM, ACROSS_A, WIDE_A);
    land(tiles + now + WORDS * BM, held_b, &walk_b, BN, ACROSS_B, WIDE_B);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#if SPLIT
  partial += partial_of_work_group(BM * BN);
#endif
  UNROLL for (int i = 0; i < MT; ++i) {
    UNROLL for (int j = 0; j < NT; ++j) {
      UNROLL for (int e = 0; e < D_ELEMENTS; ++e) {
        const int r = row + i * UNIT_M + D_ROW(e, lane), t = column + j * UNIT_N + D_COLUMN(e, lane);
#if SPLIT
        partial[r * BN + t] = (ACC_T)acc[i][j][e];
#else
        STORE_RESULT(origin.x + r, origin.y + t, (ACC_T)acc[i][j][e], RESULT);
#endif
      }
    }
  }
}
