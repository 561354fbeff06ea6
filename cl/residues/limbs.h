/* limbs: float64 products by products of 32-bit integers with 64-bit sums. The launches, and why the result is right.
 *
 *   measure.cl, choose.cl   as for residues, with one number in place of moduli: t_A, t_B <= 58 bits of an element
 *   limbs_convert.cl        a' = round(a 2^(t_A - s_i)), b' = round(b 2^(t_B - s_j)), as two limbs each
 *   limbs_multiply.cl       C' = sum_k a' b', of 128 bits
 *   limbs_round.cl          out = C' 2^(s_i + s_j - t_A - t_B), rounded once, with the epilogue
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
 * Technique: products of fixed-point numbers by limbs, as of long integers. See also residues.h.
 */
#include "include/types.h"

#define LIMB 29 /* bits */
#define WORDS 4 /* of a sum: LIMB bits each, but for the last */
#define BLOCK 16 /* products that are added before sums pass on their upper bits */
#define LIMB_MASK (((long)1 << LIMB) - 1)
#define WHOLE_AT(z, i, j, part, M, N) (2 * (PLANES * (((long)(z) * (M) + (i)) * (N) + (j)) + (part)))
