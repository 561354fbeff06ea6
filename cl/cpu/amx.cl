/* amx: out = A B by the matrix units of Intel's processors (AMX), with one work-item in each work-group.
 *
 *                 j0    nc                 work-group (tile column, tile row, z),
 *              +-----+------+---+          the first two exchanged with rows_first:
 *              |  B  |//////|   | kc         for k0 in steps of kc:
 *              +-----+------+---+              for each 32 rows, for each 32 columns of the mc x nc tile:
 *       kc                                       sums = 0, or those of earlier steps
 *     +-----+  +-----+------+---+                sums += A(32 rows, kc) B(kc, 32 columns)     (amx_tiles.h)
 *     |/////|  |     | out  |   | mc             keep them, or store them after the last step
 *     +-----+  +-----+------+---+
 *
 * kc x 32 of A, kc x nc of B and the sums stay in the second-level cache: a load of a tile from there is a little slower
 * than a multiplication, but sums that are kept often cost more (docs/kernels/amx.md). B is in panels of tiles (amx_panels.h), A too or in place.
 *
 * TDPBF16PS takes subnormal operands and sums for zero. With CHECKED 1 the result is as if it did not: the launches that
 * pack look at every number. If each is zero or at least 2^-51, a product of two that are not zero is at least 2^-102.
 * To take a sum for zero then loses less than 2^-126 <= 2^-24 |a b|, once for each product at most. That is what a
 * rounding may lose. Otherwise plan[0] stays 0: this kernel returns at once, and the launches that follow it compute
 * the product in another way (GATE 1).
 *
 * Macros: BM, BN, the largest mc and nc, multiples of 32; KC, the largest kc, in steps; PACK_A, 1: A is in panels, 0: in place; CHECKED 0, 1; those of
 * the headers. LANES is 16.
 *
 * Preconditions: K > 0. mc, nc are multiples of 32. Without PACK_A M is a multiple of 32 and K of STEP.
 * The process has asked Linux for the use of the tile registers.
 */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/amx_tiles.h"
#include "cpu/amx_panels.h"
#include "cpu/amx_store.h"

#if !defined(BM) || !defined(BN) || !defined(PACK_A) || !defined(CHECKED)
#error "amx.cl needs BM BN PACK_A CHECKED"
#endif

/* The byte where 32 rows of A begin at a step, and the bytes from one row, and from one step, to the next. */
#if PACK_A
#define A_START(a, panels, i, step, lda, M, K) ((ulong)(panels) + place_of((i) / BLOCK, step, PANELS_OF(M), STEPS_OF(K)))
#define A_ROW(lda) ((long)ROW_BYTES)
#define A_NEXT (2 * TILE_BYTES)
#else
#define A_START(a, panels, i, step, lda, M, K) ((ulong)((a) + (i) * (lda) + (long)(step) * STEP))
#define A_ROW(lda) ((lda) * (long)sizeof(A_T))
#define A_NEXT ROW_BYTES
#endif

#if CHECKED
/* Decides between this product and another one: plan[0] is 1 if no small number was seen. */
__kernel ONE_ITEM void amx_choose(__global int *plan)
{
  plan[0] = !plan[1];
  plan[1] = 0;
}
#endif

/* `steps` steps of a block: the sums become those at `sum`, which begin with zeros if this is the first. */
INLINE void compute_block(
    __local ACC_T *sum, ulong a, const long row, ulong b, const int steps, const bool first)
{
  const ulong upper = (ulong)sum, lower = upper + TILE * BLOCK * sizeof(ACC_T);
  if (first) clear_block();
  else load_block(upper, lower, BLOCK * sizeof(ACC_T));
  for (int s = 0; s < steps; ++s) {
    multiply_block(a, a + TILE * row, row, b);
    a += A_NEXT;
    b += 2 * TILE_BYTES;
  }
  store_block_at(upper, lower, BLOCK * sizeof(ACC_T));
}

__kernel ONE_WIDE_ITEM void amx_multiply(
    GEMM_ARGS, const int mc, const int nc, const int rows_first, __global const uchar *a_panels,
    const long a_stack, __global const uchar *b_panels, const long b_stack, __global const int *plan)
{
  __local ACC_T sums[BM * BN] ALIGNED(64);
  GEMM_BEGIN;
#if CHECKED
  if (!plan[0]) return;
#endif
  a_panels += BATCH_ENTRY * a_stack;
  b_panels += BATCH_ENTRY * b_stack;
  const int i0 = get_group_id(!rows_first) * mc, j0 = get_group_id(rows_first) * nc;
  const int i_end = min(M, i0 + mc), j_end = min(N, j0 + nc), steps = STEPS_OF(K);
  configure_tiles();
  for (int k0 = 0; k0 < steps; k0 += KC) {
    const int length = min(KC, steps - k0);
    int block = 0;
    for (int i = i0; i < i_end; i += BLOCK)
      for (int j = j0; j < j_end; j += BLOCK, ++block) {
        /* The sums of one chunk need not outlive their block: the first-level cache keeps them. */
        __local ACC_T *sum = sums + (steps <= KC ? 0 : block * BLOCK * BLOCK);
        const ulong rows = A_START(a, a_panels, i, k0, lda, M, K);
        const ulong columns = (ulong)b_panels + place_of(j / BLOCK, k0, PANELS_OF(N), steps);
        compute_block(sum, rows, A_ROW(lda), columns, length, k0 == 0);
        if (k0 + KC >= steps) store_sums(sum, i, j, RESULT);
      }
  }
  release_tiles();
}
