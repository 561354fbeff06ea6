/* float32 operands as sums of two parts: what split.cl makes, what split_guard.h judges, and why.
 *
 * A line (a row of A, a column of B) has an exponent e in `exponents` (M of A, then those of B): its magnitudes lie
 * under 2^(e + 15), the largest, as a rule, over 2^(e + 12). ZERO_LINE: it is all zero. NaN and infinity count as 2^128.
 *
 * Macros: SPLIT 0: the operands are not split
 *               1: as sums of two float16, each line scaled by 2^-e; quality: see below
 *               2: as sums of two TF32, unscaled; what is left over by 1
 *
 * What float16 parts keep. x' = 2^-e x, |x'| < 2^15, becomes hi + lo with an error of at most 2^-22 |x'|, or
 * 2^-25 where |x'| < SMALL, 2^-3: such an element, if it is not zero, is lossy. Of a line, with n lossy elements
 * and c of LARGE = 2^5 or more, the score is c - 4 n. Rows i and columns j with
 *
 *     score_i + score_j >= K,    that is    c_i + c_j - K >= 4 (n_i + n_j),
 *
 * have c_i + c_j - K or more k at which both are large, so that what the lossy ones lose is within the same bound:
 *
 *     2^-25 2^15 (n_i + n_j) <= 2^-12 (c_i + c_j - K) <= 2^-22 sum_k |a'_ik b'_kj|
 *
 * So float16 parts serve if the lowest scores of both operands make K together, or if nothing is lossy: then no
 * element of the result is off by more than 2^-20 sum |a b|, besides what float32 sums are off. quality: for
 * each LINES lines their lowest score (NEVER where not finite), and whether anything is lossy.
 */
#include "include/types.h"

#ifndef SPLIT
#error "split.h needs SPLIT"
#endif
#define ZERO_LINE (-127)
#define NEVER (-(1 << 30))
#define TOP as_uint(0x1p15f)
#define SMALL as_uint(0x1p-3f)
#define LARGE 0x1p5f
#define LOSS 4
#define LINES 8
#define EXPONENTS (SPLIT == 1)
#define COMPLEX (PLANES == 2)
