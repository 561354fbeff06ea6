/* combine: the result from the residues of the products (residues.h), with the epilogue.
 *
 *   all_digits[z][block][product][row][column]: (P / p_i)^-1 C' mod p_i of each block of K, bytes of 0 .. p_i - 1: y_i
 *   complex: x = (P / p_i)^-1 (re + i im) / 2 and z = (P / p_i)^-1 (re - i im) / 2: re has y_i = x + z, im (x - z) / i
 *
 *   S = sum over i of y_i (P / p_i) = C' + m P      m = round(S / P), because |C'| < P / 2
 *
 * Numbers are LIMBS limbs of 20 bits: y_i < 2^8 times a limb, added for up to 15 moduli, stays below 2^32, so one block
 * needs no carry. After the carries a number is high 2^60 + low, 0 <= low < 2^60.
 * Four neighbouring columns are one work-item's.
 *
 * Macros: MODULI; those of gemm.h. Technique: see residues.h.
 */
#define ROUNDS_DOUBLES
#include "include/attributes.h"
#include "include/gemm.h"
#include "include/soft_double.h"
#include "residues/residues.h"

#define COLUMNS 4
#define AHEAD 5 /* moduli whose digits a work-item loads at a time; divides MODULI */
#define LIMBS 6
#define LIMB_BITS 20
#define LIMB_MASK ((1u << LIMB_BITS) - 1)
#define LOW_BITS (3 * LIMB_BITS)
#define LOW_MASK (((ulong)1 << LOW_BITS) - 1)
#if SOFT_FLOAT64
#define AS_REAL(bits) (bits)
#else
#define AS_REAL(bits) as_double(bits)
#endif
#if PLANES == 2
#define RESULT_OF(v) ((ACC_T)(AS_REAL((v)[0]), AS_REAL((v)[1])))
#else
#define RESULT_OF(v) AS_REAL((v)[0])
#endif

/* Carries: all limbs but the highest are below 2^20. */
INLINE void carry_up(uint sums[LIMBS])
{
  UNROLL for (int l = 0; l < LIMBS - 1; ++l) {
    sums[l + 1] += sums[l] >> LIMB_BITS;
    sums[l] &= LIMB_MASK;
  }
}

/* An integer below 2^23. GPUs convert integers at an eighth of their rate. */
INLINE float as_small_float(const uint x) { return as_float(x | TO_FLOAT) - as_float(TO_FLOAT); }

/* C' 2^exponent as the bits of a double. sums: those of S; product: P. */
INLINE ulong rebuilt(uint sums[LIMBS], const uint8 product, const int exponent)
{
  carry_up(sums);
  float whole = (float)sums[LIMBS - 1]; /* of many blocks of K it is not small */
  UNROLL for (int l = LIMBS - 2; l >= 0; --l) whole = whole * (float)(1 << LIMB_BITS) + as_small_float(sums[l]);
  const int multiple = as_int(whole * as_float(product.s7) + as_float(TO_FLOAT)) - (int)TO_FLOAT; /* rounded */
  const int parts[LIMBS] = {product.s0, product.s1, product.s2, product.s3, product.s4, product.s5};
  int carry = 0;
  uint limbs[LIMBS];
  UNROLL for (int l = 0; l < LIMBS; ++l) {
    const int limb = (int)sums[l] - multiple * parts[l] + carry;
    limbs[l] = l < LIMBS - 1 ? limb & LIMB_MASK : (uint)limb;
    carry = limb >> LIMB_BITS;
  }
  ulong low = (ulong)limbs[2] << 2 * LIMB_BITS | (ulong)limbs[1] << LIMB_BITS | limbs[0];
  ulong high = ((ulong)(long)(int)limbs[5] << 2 * LIMB_BITS) + ((ulong)limbs[4] << LIMB_BITS | limbs[3]);
  const bool negative = (long)high < 0;
  if (negative) {
    low = -low & LOW_MASK;
    high = ~high + !low;
  }
  if (!high) return rounded_double(negative, low, exponent);
  const int up = (int)clz(high); /* at least 64 - LOW_BITS, as |C'| < 2^(2 LOW_BITS - 1) */
  const ulong below = low << (64 - LOW_BITS);
  const ulong top = high << up | below >> (64 - up);
  return rounded_from(negative, top | ((below << up) != 0), exponent + LOW_BITS - up, 63);
}

/* Adds the digits of one number to its sums. */
INLINE void add_digit(uint sums[LIMBS], const uint digit, const uint8 row)
{
  const uint limbs[LIMBS] = {row.s0, row.s1, row.s2, row.s3, row.s4, row.s5};
  UNROLL for (int l = 0; l < LIMBS; ++l) sums[l] += digit * limbs[l];
}

#if PLANES == 2
/* Adds the digits of re and im from those of both products. */
INLINE void add_digits(uint sums[2][LIMBS], const uint x, const uint z, const uint8 row)
{
  const uint p = row.s6 & 0xffff, both = x + z, turned = (x + p - z) * (row.s6 >> 16); /* below 2^17 */
  add_digit(sums[0], min(both, both - p), row);
  const uint rest = turned - (uint)rint((float)turned * as_float(row.s7)) * p; /* -p / 2 to p / 2 */
  add_digit(sums[1], min(rest, rest + p), row);
}
#endif

__kernel void residues_combine(
    GEMM_ARGS, __global const int *scales, __global const plan_t *plan, __global const uchar *all_digits,
    const long pitch, const int blocks, __constant const uint8 *table)
{
  GEMM_BEGIN;
  const int column = get_global_id(0) * COLUMNS, i = get_global_id(1);
  const int count = plan->count;
  if (!count || i >= M || column >= N) return;
  const long plane = M * pitch;
  uint sums[COLUMNS][PLANES][LIMBS];
  UNROLL for (int e = 0; e < COLUMNS; ++e)
    UNROLL for (int part = 0; part < PLANES; ++part)
      UNROLL for (int l = 0; l < LIMBS; ++l) sums[e][part][l] = 0;
  __constant const uint8 *rows = table + count * (MODULI + 1);
  for (int block = 0; block < blocks; ++block) {
    __global const uchar *from = all_digits + (BATCH_ENTRY * blocks + block) * (MODULI * PLANES) * plane + i * pitch + column;
    for (int n = 0; n < count; n += AHEAD) {
      uchar4 x[AHEAD], z[AHEAD];
      UNROLL for (int m = 0; m < AHEAD; ++m) {
        __global const uchar4 *at = (__global const uchar4 *)(from + (n + m) * PLANES * plane);
        x[m] = n + m < count ? *at : (uchar4)(0);
        z[m] = PLANES == 2 && n + m < count ? at[plane / 4] : (uchar4)(0);
      }
      UNROLL for (int m = 0; m < AHEAD; ++m) {
        const uint8 row = rows[n + m];
        const uint first[COLUMNS] = {x[m].s0, x[m].s1, x[m].s2, x[m].s3};
#if PLANES == 2
        const uint second[COLUMNS] = {z[m].s0, z[m].s1, z[m].s2, z[m].s3};
        UNROLL for (int e = 0; e < COLUMNS; ++e)
          if (n + m < count) add_digits(sums[e], first[e], second[e], row);
#else
        UNROLL for (int e = 0; e < COLUMNS; ++e) add_digit(sums[e][0], first[e], row);
#endif
      }
    }
    if (blocks > 1) /* leaves room for the next block */
      UNROLL for (int e = 0; e < COLUMNS; ++e) UNROLL for (int part = 0; part < PLANES; ++part) carry_up(sums[e][part]);
  }
  scales += BATCH_ENTRY * (M + N);
  const int unit = scales[i] - plan->bits_a - plan->bits_b;
  UNROLL for (int e = 0; e < COLUMNS; ++e) {
    const int scale = column + e < N ? scales[M + column + e] : 0;
    ulong v[PLANES];
    UNROLL for (int part = 0; part < PLANES; ++part) v[part] = rebuilt(sums[e][part], rows[MODULI], unit + scale);
    STORE_RESULT(i, column + e, RESULT_OF(v), RESULT);
  }
}
