/* combine: the result from the residues of the products (residues.h), with the epilogue.
 *
 *   all_digits[z][block][product][row][column]: (P / p_i)^-1 C' mod p_i of each block of K, bytes of 0 .. p_i - 1: y_i
 *   complex: x = (P / p_i)^-1 (re + i im) / 2 and z = (P / p_i)^-1 (re - i im) / 2: re has y_i = x + z, im (x - z) / i
 *
 *   w = y_i (q / p_i) + y_j (q / p_j) + y_k (q / p_k)      q = p_i p_j p_k: a group of three moduli
 *   S = sum over the groups of w (P / q) = C' + m P         m = round(S / P) = round(sum of w / q), as |C'| < P / 2
 *
 * P / q has three words of 32 bits. The w of five groups, each below 2^27, times a word stay below 2^64 when they are added for
 * 22 blocks (tests/kernels/residues/test_moduli.py). Sums of so many w / q, up to 660, err by less than 2^-7, and
 * choose.cl leaves more than that between |C'| / P and 1 / 2. Four neighbouring columns are one work-item's.
 *
 * Macros: MODULI; those of gemm.h. Technique: see residues.h.
 */
#include "residues/result.h"
#include "residues/residues.h"

#define COLUMNS 4
#define GROUP 3 /* moduli */
#define GROUPS (MODULI / GROUP)
#define WORDS 3
#define AHEAD (PLANES == 2 ? GROUP : MODULI) /* moduli whose digits a work-item loads at a time: H200 */

/* What a work-item knows of S: sums by words, and S / P. */
typedef struct { ulong words[WORDS]; float quotient; } sum_t;

/* C' 2^exponent as the bits of a double. opposite: 2^128 - P in four words. */
INLINE ulong rebuilt(const sum_t *sum, const uint8 opposite, const int exponent)
{
  const uint multiple = as_uint(sum->quotient + as_float(TO_FLOAT)) - TO_FLOAT; /* rounded */
  const ulong middle = sum->words[1] + (ulong)multiple * opposite.s1;
  ulong low = sum->words[0] + (ulong)multiple * opposite.s0;
  ulong high = sum->words[2] + (ulong)multiple * opposite.s2 + ((ulong)(multiple * opposite.s3) << 32);
  high += (middle >> 32) + (((low >> 32) + (middle & 0xffffffff)) >> 32);
  low += middle << 32;
  return rounded_sum(high, low, exponent);
}

/* Adds the digits of a group of moduli to the sums of four columns. moduli: rows of p, with 1 / i modulo p from bit 16 on,
 * and 1 / p. Complex: the digits of re are below 2 p, those of im up to 3 / 2 p. */
INLINE void add_group(
    sum_t sums[COLUMNS][PLANES], const uint digits[GROUP][PLANES], const uint8 group, __constant const uint8 *moduli)
{
  const uint words[WORDS] = {group.s0, group.s1, group.s2}, factors[GROUP] = {group.s3, group.s4, group.s5};
  UNROLL for (int e = 0; e < COLUMNS; ++e) {
    uint w[PLANES] = {0};
    UNROLL for (int n = 0; n < GROUP; ++n) {
      const uint x = digits[n][0] >> 8 * e & 0xff;
#if PLANES == 2
      const uint z = digits[n][1] >> 8 * e & 0xff, p = moduli[n].s0 & 0xffff;
      const uint turned = (x + p - z) * (moduli[n].s0 >> 16); /* below 2^17 */
      w[0] += (x + z) * factors[n];
      w[1] += (turned + p - (uint)rint((float)turned * as_float(moduli[n].s1)) * p) * factors[n];
#else
      w[0] += x * factors[n];
#endif
    }
    UNROLL for (int part = 0; part < PLANES; ++part) {
      UNROLL for (int n = 0; n < WORDS; ++n) sums[e][part].words[n] += (ulong)w[part] * words[n];
      sums[e][part].quotient += (as_float(w[part] >> group.s7 | TO_FLOAT) - as_float(TO_FLOAT)) * as_float(group.s6);
    }
  }
}

__kernel void residues_combine(
    GEMM_ARGS, __global const int *scales, __global const plan_t *plan, __global const uchar *all_digits,
    const long pitch, const int blocks, __constant const uint8 *table)
{
  GEMM_BEGIN;
  const int column = get_global_id(0) * COLUMNS, i = get_global_id(1);
  const int count = plan->count;
  if (!count || i >= M || column >= N) return;
  const long plane = M * pitch;
  sum_t sums[COLUMNS][PLANES];
  UNROLL for (int e = 0; e < COLUMNS; ++e)
    UNROLL for (int part = 0; part < PLANES; ++part) {
      UNROLL for (int n = 0; n < WORDS; ++n) sums[e][part].words[n] = 0;
      sums[e][part].quotient = 0.0f;
    }
  __constant const uint8 *rows = table + count * (GROUPS + 1 + MODULI);
  for (int block = 0; block < blocks; ++block) {
    __global const uchar *from = all_digits + (BATCH_ENTRY * blocks + block) * (MODULI * PLANES) * plane + i * pitch + column;
    for (int first = 0; first < count; first += AHEAD) {
      uint digits[AHEAD][PLANES]; /* of four columns each */
      UNROLL for (int n = 0; n < AHEAD; ++n)
        UNROLL for (int part = 0; part < PLANES; ++part)
          digits[n][part] = first + n < count ? *(__global const uint *)(from + ((first + n) * PLANES + part) * plane) : 0;
      UNROLL for (int g = 0; g < AHEAD; g += GROUP)
        if (first + g < count) add_group(sums, digits + g, rows[(first + g) / GROUP], rows + GROUPS + 1 + first + g);
    }
  }
  scales += BATCH_ENTRY * (M + N);
  const int unit = scales[i] - plan->bits_a - plan->bits_b;
  UNROLL for (int e = 0; e < COLUMNS; ++e) {
    const int scale = column + e < N ? scales[M + column + e] : 0;
    ulong v[PLANES];
    UNROLL for (int part = 0; part < PLANES; ++part) v[part] = rebuilt(&sums[e][part], rows[GROUPS], unit + scale);
    STORE_RESULT(i, column + e, RESULT_OF(v), RESULT);
  }
}
