/* limbs: float64 products by products of 32-bit integers with 64-bit sums. The launches, and why the result is right.
 *
 *   measure.cl, choose.cl   as for residues, with one number in place of moduli: t_A, t_B <= 58 bits of an element
 *   limbs_convert           a' = round(a 2^(t_A - s_i)), b' = round(b 2^(t_B - s_j)), as two limbs each
 *   limbs_multiply          C' = sum_k a' b', of 128 bits
 *   limbs_round             out = C' 2^(s_i + s_j - t_A - t_B), rounded once, with the epilogue
 *
 * a' = u 2^29 + l with -2^28 <= l < 2^28. As |a'| <= 2^58, |u| <= 2^29. A product is four products of limbs:
 *
 *   a' b' = u_a u_b 2^58 + (u_a l_b + l_a u_b) 2^29 + l_a l_b
 *
 * Each bracket has a sum of 64 bits. Of BLOCK products |u u| <= 2^58, |u l + l u| <= 2^58 and |l l| <= 2^56. After each BLOCK
 * = 16 products the sums pass on what is above their 29 bits to the next one, and a fourth takes the rest. So each stays
 * below 16 2^58 + 2^36 < 2^63. choose.cl takes t_A + t_B <= 126 - log2(U), so |C'| < 2^126, and C' fits 128 bits.
 *
 * That C' is accurate, within the same bound for each element, is shown in residues.h: t_A and t_B are all that it needs.
 *
 * Complex numbers: lines have 2 K real ones, re and im of each, and C' has re and im, sums of 2 K products each.
 *
 *   limbs_a[z][i][n]   limbs_b[z][n][j]     n: number of a real one in its line. u is the upper half of a word, l the lower
 *   wholes[z][i][j][part][2]                C' of each part, the lower word first
 *
 * Places in the first two are 32-bit numbers: llvmpipe (Mesa 22.3) loads four times as slowly where a place is a long.
 *
 * Macros: of limbs_multiply TM, TN, ITEMS_X, ITEMS_Y; those of gemm.h.
 * Technique: products of fixed-point numbers by limbs, as of long integers. See also residues.h.
 */
#include "include/gemm.h"
#include "residues/lines.h"
#include "residues/residues.h"
#include "residues/result.h"

#define LIMB 29 /* bits */
#define WORDS 4 /* of a sum: LIMB bits each, but for the last */
#define BLOCK 16 /* products that are added before sums pass on their upper bits */
#define LIMB_MASK (((long)1 << LIMB) - 1)
#define WHOLE_AT(z, i, j, part, M, N) (2 * (PLANES * (((long)(z) * (M) + (i)) * (N) + (j)) + (part)))
#define STEPS (BLOCK / PLANES) /* of K, in a block */
#define FOR_TILE(m, n) UNROLL for (int m = 0; m < TM; ++m) UNROLL for (int n = 0; n < TN; ++n)
#define FOR_PARTS(part) UNROLL for (int part = 0; part < PLANES; ++part)

/* Work-item (n, line) of A -> limbs_a[z][line][n], (line, n) of B -> limbs_b[z][n][line]. So neighbouring work-items write
 * neighbours, and read neighbours unless the operand is transposed. */
__kernel void limbs_convert(
    GEMM_ARGS, __global const int *scales, __global const plan_t *plan, __global ulong *limbs, const int second)
{
  GEMM_BEGIN;
  operand_t x;
  find_operand(&x, second, a, lda, b, ldb, M, N, K);
  const int at = get_global_id(0), row = get_global_id(1), width = second ? x.lines : x.depth;
  if (!plan->count || at >= width) return;
  const int line = second ? at : row, n = second ? row : at;
  const int scale = scales[BATCH_ENTRY * (M + N) + (second ? M : 0) + line];
  const ulong bits = x.from[place_of(&x, line, n)] ^ sign_of(&x, n);
  const long whole = (long)whole_of(bits, (second ? plan->bits_b : plan->bits_a) - scale);
  const long upper = (whole + ((long)1 << (LIMB - 1))) >> LIMB;
  const uint lower = (uint)(whole - (upper << LIMB));
  limbs[(BATCH_ENTRY * x.lines) * x.depth + row * width + at] = (ulong)upper << 32 | lower;
}

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

/* The sums C'.
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
 * and limbs_round has the epilogue. */
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
  FOR_TILE(m, n) FOR_PARTS(part) UNROLL for (int w = 0; w < WORDS; ++w) sums[m][n][part][w] = 0;
  UNROLL for (int m = 0; m < TM; ++m) rows[m] = (z * M + min(i0 + m, M - 1)) * depth;
  UNROLL for (int n = 0; n < TN; ++n) columns[n] = z * N * depth + min(j0 + n * ITEMS_X, N - 1);
  for (int first = 0; first < K; first += STEPS) {
    const int end = min(K, first + STEPS);
    ONCE for (int k = first; k < end; ++k) {
      int2 x[TM][PLANES], y[TN][PLANES];
      FOR_PARTS(part) {
        const int at = k * PLANES + part;
        UNROLL for (int m = 0; m < TM; ++m) x[m][part] = as_int2(limbs_a[rows[m] + at]);
        UNROLL for (int n = 0; n < TN; ++n) y[n][part] = as_int2(limbs_b[columns[n] + at * N]);
      }
      FOR_TILE(m, n) add_element(sums[m][n], x[m], y[n]);
    }
    FOR_TILE(m, n) FOR_PARTS(part) carry(sums[m][n][part]);
  }
  FOR_TILE(m, n) FOR_PARTS(part)
    if (i0 + m < M && j0 + n * ITEMS_X < N) {
      const long *sum = sums[m][n][part];
      __global ulong *to = wholes + WHOLE_AT(z, i0 + m, j0 + n * ITEMS_X, part, M, N);
      to[0] = (ulong)sum[2] << (2 * LIMB) | (ulong)sum[1] << LIMB | (ulong)sum[0];
      to[1] = ((ulong)sum[3] << (3 * LIMB - 64)) + ((ulong)sum[2] >> (64 - 2 * LIMB));
    }
}

/* Work-item (j, i) -> out(i, j). */
__kernel void limbs_round(
    GEMM_ARGS, __global const int *scales, __global const plan_t *plan, __global const ulong *wholes)
{
  GEMM_BEGIN;
  const int j = get_global_id(0), i = get_global_id(1);
  if (!plan->count || j >= N) return;
  scales += BATCH_ENTRY * (M + N);
  wholes += WHOLE_AT(BATCH_ENTRY, i, j, 0, M, N);
  const int unit = scales[i] + scales[M + j] - plan->bits_a - plan->bits_b;
  ulong v[PLANES];
  FOR_PARTS(part) v[part] = rounded_sum(wholes[2 * part + 1], wholes[2 * part], unit);
  STORE_RESULT(i, j, RESULT_OF(v), RESULT);
}
