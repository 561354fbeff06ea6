/* limbs_multiply: the sums C' from operands of two limbs (limbs.h).
 *
 *             j0    ITEMS_X TN             Work-item (lj, li) of a work-group has TM rows and TN columns:
 *          +-------------------+             out(i0 + li TM + m, j0 + lj + n ITEMS_X)
 *     i0   |  x    x    x    x |
 *          |  x    x    x    x | TM        For each k it loads TM + TN words and has 4 TM TN products of limbs.
 *          |                   |           Neighbouring work-items load neighbours of B, and the same of A.
 *          +-------------------+
 *
 * Lines beyond the matrix are those at its edge; their sums are not stored. There is no local memory and no barrier. The loops
 * over the tile must vanish: where a driver keeps one, the sums are in memory (llvmpipe: 20 times as slow). So they do little,
 * and limbs_round.cl has the epilogue.
 * Macros: TM, TN, ITEMS_X, ITEMS_Y; those of gemm.h. Technique: see limbs.h.
 */
#include "include/gemm.h"
#include "residues/limbs.h"
#include "residues/residues.h"

#define STEPS (BLOCK / PLANES) /* of K, in a block */

typedef long sum_t[WORDS];

/* Adds x y. */
INLINE void add_product(long *sum, const int2 x, const int2 y)
{
  sum[0] += (long)x.s0 * y.s0;
  sum[1] += (long)x.s0 * y.s1;
  sum[1] += (long)x.s1 * y.s0;
  sum[2] += (long)x.s1 * y.s1;
}

/* Adds a product of real or complex numbers to the sum of each part. */
INLINE void add_element(sum_t sums[PLANES], const int2 x[PLANES], const int2 y[PLANES])
{
  add_product(sums[0], x[0], y[0]);
#if PLANES == 2
  add_product(sums[0], -x[1], y[1]);
  add_product(sums[1], x[0], y[1]);
  add_product(sums[1], x[1], y[0]);
#endif
}

/* Passes on what is above the bits of each word. */
INLINE void carry(long *sum)
{
  UNROLL for (int w = 0; w < WORDS - 1; ++w) {
    sum[w + 1] += sum[w] >> LIMB;
    sum[w] &= LIMB_MASK;
  }
}

__kernel WORK_GROUP(ITEMS_X, ITEMS_Y, 1) void limbs_multiply(
    GEMM_ARGS, __global const plan_t *plan, __global const ulong *limbs_a, __global const ulong *limbs_b,
    __global ulong *wholes)
{
  GEMM_BEGIN;
  if (!plan->count) return;
  const int j0 = get_group_id(0) * ITEMS_X * TN + get_local_id(0), i0 = get_global_id(1) * TM;
  const int depth = K * PLANES, z = (int)BATCH_ENTRY;
  sum_t sums[TM][TN][PLANES];
  int rows[TM], columns[TN];
  UNROLL for (int m = 0; m < TM; ++m)
    UNROLL for (int n = 0; n < TN; ++n)
      UNROLL for (int part = 0; part < PLANES; ++part)
        UNROLL for (int w = 0; w < WORDS; ++w) sums[m][n][part][w] = 0;
  UNROLL for (int m = 0; m < TM; ++m) rows[m] = (z * M + min(i0 + m, M - 1)) * depth;
  UNROLL for (int n = 0; n < TN; ++n) columns[n] = z * N * depth + min(j0 + n * ITEMS_X, N - 1);
  for (int first = 0; first < K; first += STEPS) {
    const int end = min(K, first + STEPS);
    ONCE for (int k = first; k < end; ++k) {
      int2 x[TM][PLANES], y[TN][PLANES];
      UNROLL for (int part = 0; part < PLANES; ++part) {
        const int at = k * PLANES + part;
        UNROLL for (int m = 0; m < TM; ++m) x[m][part] = as_int2(limbs_a[rows[m] + at]);
        UNROLL for (int n = 0; n < TN; ++n) y[n][part] = as_int2(limbs_b[columns[n] + at * N]);
      }
      UNROLL for (int m = 0; m < TM; ++m)
        UNROLL for (int n = 0; n < TN; ++n) add_element(sums[m][n], x[m], y[n]);
    }
    UNROLL for (int m = 0; m < TM; ++m)
      UNROLL for (int n = 0; n < TN; ++n)
        UNROLL for (int part = 0; part < PLANES; ++part) carry(sums[m][n][part]);
  }
  UNROLL for (int m = 0; m < TM; ++m)
    UNROLL for (int n = 0; n < TN; ++n)
      UNROLL for (int part = 0; part < PLANES; ++part)
        if (i0 + m < M && j0 + n * ITEMS_X < N) {
          const long *sum = sums[m][n][part];
          __global ulong *to = wholes + WHOLE_AT(z, i0 + m, j0 + n * ITEMS_X, part, M, N);
          to[0] = (ulong)sum[2] << (2 * LIMB) | (ulong)sum[1] << LIMB | (ulong)sum[0];
          to[1] = ((ulong)sum[3] << (3 * LIMB - 64)) + ((ulong)sum[2] >> (64 - 2 * LIMB));
        }
}
