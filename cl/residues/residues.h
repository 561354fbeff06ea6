/* residues: float64 products by 8-bit integer products. The launches, and why the result is right.
 *
 *   measure.cl   for each line (a row of A, a column of B): how large its elements are, and how much they range
 *   choose.cl    from all lines: N moduli and the bits t_A, t_B of an element; N = 0: the plain product is computed
 *   convert.cl   a' = round(a 2^(t_A - s_i)), b' = round(b 2^(t_B - s_j)), whole numbers; their residues modulo p_0 ..
 *                (another family) N products of residues, each summed in 32 bits and stored modulo p (moduli.h)
 *   combine.cl   the whole number C' = sum_k a' b' from its residues; out = C' 2^(s_i + s_j - t_A - t_B), rounded once
 *
 * s_i: the least integer with |a_ik| < 2^s_i for all k. An empty line (all zeros) has ZERO_LINE.
 *
 * Complex numbers: a line has 2 K real ones, re and im of each. C' has re and im, sums of 2 K products each. Modulo each
 * p there is a number i with i^2 = -1 (kernels/residues/moduli.py), so that two products of residues do, those of
 * re + i im and of re - i im.
 *
 * C' is known. Let x_k = |a_ik| 2^-s_i and y_k = |b_kj| 2^-s_j, so both are below 1. choose.cl has a number
 * U >= sum_k x_k y_k for all i, j: the least of the largest sum of x, the largest sum of y, and the root of the product
 * of the largest sums of squares (Cauchy and Schwarz). It takes t_A + t_B <= log2(P / 2) - log2(U), P = p_0 p_1 .. So
 * |C'| < P / 2, and the residues determine C' (Chinese remainder theorem). SLACK and SLACK_BITS cover the
 * sums' roundings and those of a' and b'.
 *
 * C' is accurate. If every element of A has its last bit at 2^(s_i - t_A) or above, a' is exact, and so for B. If both
 * are, the result is the exact sum, rounded once. Otherwise an element of A is off by at most 2^(s_i - t_A - 1), and
 *
 *     error / 2^(s_i + s_j) <= E = 2^(-t_A - 1) sum y + 2^(-t_B - 1) sum x + K 2^(-t_A - t_B - 2)
 *
 * where the first term falls away if all of A is exact, and so on. On the other side, let c_r be the number of elements
 * of a line with x >= 2^-r, r = 1 .. LEVELS. By the pigeonhole principle at least c_r(i) + c_q(j) - K values of k have
 * x_k >= 2^-r and y_k >= 2^-q. With w_r = 2^-r - 2^-(r + 1), and w_LEVELS = 2^-LEVELS, x >= the sum of w_r over all r
 * with x >= 2^-r. So
 *
 *     sum_k x_k y_k >= L = sum over r, q of w_r w_q max(0, c_r + c_q - K)
 *
 * choose.cl takes the least c_r of all lines that are not empty, and takes N only if E <= max(8, K / 4) 2^-53 L. So for
 * every element of the result
 *
 *     |got - exact| <= (max(8, K / 4) + 1) 2^-53 sum_k |a_ik b_kj| + 2^-1075
 *
 * (1, or 2^-1075 where the result is subnormal, for the last rounding), where a float64 sum of K products may be off by
 * K 2^-53 sum |a b|. If no N serves, or an element is NaN or infinite, or a sum might overflow, N is 0.
 *
 * Technique: Ozaki, Uchino, Imamura, "Ozaki Scheme II: a GEMM-oriented emulation of floating-point matrix multiplication
 * using an integer modular technique" (2025). The choice of N by the pigeonhole principle is ours (also nvidia/split.h).
 */
#include "include/attributes.h"

#define ZERO_LINE (-(1 << 20))
#define NOT_FINITE (1 << 20)
#define LEVELS 6
#define TO_FLOAT 0x4b000000u /* the bits of 2^23: with those of an integer below 2^23, a float of that integer more */

/* What is known of a line, or the worst of several: s; bits until its last bit, s - (exponent of that bit); c_1 ..; sums
 * of x and of x^2. */
typedef struct { int scale, bits, counts[LEVELS]; float sum, squares; } line_t;

/* What choose.cl decides: N, t_A, t_B. `products`, N or with complex numbers 2 N, is the gate of the launches that follow
 * (gemm.h). */
typedef struct { int products, count, bits_a, bits_b; } plan_t;

/* What is known of no line. */
INLINE void no_line(line_t *none)
{
  none->scale = ZERO_LINE;
  none->bits = 0;
  UNROLL for (int r = 0; r < LEVELS; ++r) none->counts[r] = 0x7fffffff;
  none->sum = none->squares = 0.0f;
}

/* Makes `all` the worst of itself and of a line. Empty lines do not count. */
INLINE void include(line_t *all, const line_t *line)
{
  if (line->scale == ZERO_LINE) return;
  all->scale = max(all->scale, line->scale);
  all->bits = max(all->bits, line->bits);
  UNROLL for (int r = 0; r < LEVELS; ++r) all->counts[r] = min(all->counts[r], line->counts[r]);
  all->sum = fmax(all->sum, line->sum);
  all->squares = fmax(all->squares, line->squares);
}
