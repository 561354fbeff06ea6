/* split: float32 operands as sums of two parts. split.cl makes them, split_guard.h decides whether they are used.
 *
 * A line is a row of A or a column of B. It has an exponent e in `exponents` (M of A, then those of B): its magnitudes
 * are below 2^(e + 15), the largest usually at least 2^(e + 12). ZERO_LINE: all elements are zero. NaN and infinity
 * count as 2^128.
 *
 * Macros: SPLIT 0: the operands are not split
 *               1: sums of two float16, each line scaled by 2^-e
 *               2: sums of two TF32, unscaled, where float16 parts lose too much
 *         LINES 4, 8: lines that a work-group splits
 *
 * What float16 parts keep. x' = 2^-e x, |x'| < 2^15, becomes hi + lo with an error of at most 2^-22 |x'|, or 2^-25 if
 * |x'| < SMALL = 2^-3. An element below SMALL, and not zero, is lossy. A line with n lossy elements and c elements of
 * at least LARGE = 2^5 has the score c - LOSS n, where LOSS = 4. Row i and column j with
 *
 *     score_i + score_j >= K,    that is    c_i + c_j - K >= 4 (n_i + n_j),
 *
 * have at least c_i + c_j - K values of k at which both are large. So what the lossy elements lose is within the bound:
 *
 *     2^-25 2^15 (n_i + n_j) <= 2^-12 (c_i + c_j - K) <= 2^-22 sum_k |a'_ik b'_kj|
 *
 * Float16 parts are used if the lowest scores of both operands add up to K or more, or if nothing is lossy. Then no
 * element of the result is off by more than 2^-20 sum |a b|, plus the error of float32 sums.
 *
 * quality: for each LINES lines, their lowest score (NEVER if an element is not finite), and whether anything is lossy.
 *
 * Technique: hi and lo parts, with sums outside of the matrix units, as in Ootomo and Yokota, "Recovering single
 * precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance" (2022).
 */
#include "include/types.h"

#if !defined(SPLIT) || !defined(LINES)
#error "split.h needs SPLIT LINES"
#endif
#define ZERO_LINE (-127)
#define NEVER (-(1 << 30))
#define TOP as_uint(0x1p15f)
#define SMALL as_uint(0x1p-3f)
#define LARGE 0x1p5f
#define LOSS 4
#define EXPONENTS (SPLIT == 1)
#define COMPLEX (PLANES == 2)
/* Bytes of a product's packed operand, for each line. Float16 parts have the room of the TF32 parts that may replace
 * them: in one launch a product's float16 parts are multiplied while another product's TF32 parts are written. */
#define ROOM_OF_LINE(depth, line_bytes) (SPLIT ? ((depth) + 15) / 16 * 128L : (line_bytes))
