/* Rows of A rounded to 8 bits: what int8_rows.cl and int8_tile.cl share.
 *
 * A weight is scale * code + offset, both of a group of CODES_GROUP weights along K. Numbers of A in such a group are
 * a_scale * x, x of -127 to 127, a_scale = max |a| / 127. So with sums over the group
 *
 *   out(i, j) = sum_groups a_scale * (scale * sum(x * code) + offset * sum(x))
 *
 *   round_a      makes a line of row i of A:  | K of x | a_scale of each group | a_scale * sum(x) of each group |
 *                                               in the order of the codes     zeros up to a multiple of 16
 *
 * A group of A with a NaN or an infinity has the scale NaN, and so its row is NaN. One without a number of LEAST or more
 * counts as zeros, as 127 / max |a| would be infinite.
 *
 * Macros: X_BYTES 1, 2: of a number of x; ROWS, COLUMNS; LANES and the others of vectors.h, 8 where the processor has AVX2; those of
 * gemm.h and of the format, whose header comes before and gives what formats/bytes.h says of codes.
 * Preconditions: K is a multiple of 64.
 */
#include "include/gemm.h"
#include "cpu/vectors.h"

#if !defined(ROWS) || !defined(COLUMNS) || !defined(X_BYTES) || !defined(CODES_GROUP)
#error "rows of 8 bits need ROWS COLUMNS X_BYTES, and a format with CODES_GROUP"
#endif
#if X_BYTES == 1
typedef char x_number;
#else
typedef short x_number;
#endif
#define STEP 64
#define GROUPS 16 /* whose scales become numbers at a time */
#define BLOCK (GROUPS * CODES_GROUP)
#define LEAST 0x1p-120f
#define FOR_SUMS(r, n) UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int n = 0; n < COLUMNS; ++n)

typedef __global const char *rounded_t;
/* Floats behind the bytes of a line: scales up to there, then scaled sums. */
#define SCALES(K) (((K) + BLOCK - 1) / BLOCK * GROUPS)
#define LINE(K) ((K) * (long)sizeof(x_number) + 8L * SCALES(K))

/* Where code number i of a row is, of those which codes64 gives. */
INLINE int place_of(const int i)
{
  const int half_of = max(CODES_EVEN_ODD / 2, 1), at = i % (2 * half_of);
  return CODES_EVEN_ODD ? i - at + at % 2 * half_of + at / 2 : i;
}

/* The nearest whole number, the even one of two; v is under 2^22. */
INLINE int nearest(const float v) { return as_int(v + 0x1.8p23f) - as_int(0x1.8p23f); }

/* GROUPS groups of row i, from number `first` on. */
WORK_OF_ENTRY void round_groups(
    __global const A_T *a, const long lda, const int i, const int first, const int K, __global char *line)
{
#pragma OPENCL FP_CONTRACT OFF
  __global x_number *x = (__global x_number *)line;
  __global float *scales = (__global float *)(x + K), *sums = scales + SCALES(K);
  for (int g = first; g < first + GROUPS; ++g) {
    const int k = g * CODES_GROUP;
    float v[CODES_GROUP], scale = 0;
    int most = 0, sum = 0;
    if (k < K) {
      for (int n = 0; n < CODES_GROUP; ++n) v[n] = LOAD_A(a, A_INDEX(i, k + n, lda));
      for (int n = 0; n < CODES_GROUP; ++n) most = max(most, as_int(v[n]) & 0x7fffffff); /* as floats are ordered */
      const bool counts = most >= as_int(LEAST) && most < as_int(INFINITY);
      const float inverse = counts ? 127.0f / as_float(most) : 0;
      for (int n = 0; n < CODES_GROUP; ++n) {
        const int near = nearest(v[n] * inverse);
        sum += near, x[k + place_of(n)] = near;
      }
      scale = counts ? as_float(most) * (1 / 127.0f) : most < as_int(LEAST) ? 0 : NAN;
    }
    scales[g] = scale, sums[g] = scale * sum;
  }
}

__kernel ONE_ITEM void round_a(GEMM_ARGS, __global char *lines)
{
  GEMM_BEGIN;
  const int i = get_global_id(0);
  round_groups(a, lda, i, get_global_id(1) * GROUPS, K, lines + (BATCH_ENTRY * M + i) * LINE(K));
}
