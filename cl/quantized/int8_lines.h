/* Rows of A rounded to 8 bits: what int8_rows.cl and int8_tile.cl share.
 *
 * A weight is scale * (code - CODES_ZERO) + offset, both of a group of CODES_GROUP weights along K. Numbers of A in such a
 * group are a_scale * x, x of -127 to 127, a_scale = max |a| / 127. So with sums over the group
 *
 *   out(i, j) = sum_groups a_scale * (scale * sum(x * (code - CODES_ZERO)) + offset * sum(x))
 *
 *   round_a      makes a line of row i of A, in four parts:
 *                | K of x, in the order of the codes
 *                | a_scale of each group | a_scale * sum(x) of each group    zeros up to a multiple of 16
 *                | CODES_ZERO * sum(x) of each UNIT                          filled to 64 bytes
 *
 * A group of A with a NaN or an infinity has the scale NaN, and so its row is NaN. One without a number of LEAST or more
 * counts as zeros, as 127 / max |a| would be infinite.
 *
 * Macros: ROWS, COLUMNS; LANES and the others of vectors.h, 8 where the processor has AVX2; those of
 * gemm.h and of the format, whose header comes before and gives what formats/bytes.h says of codes.
 * Preconditions: K is a multiple of 64.
 */
#include "include/gemm.h"
#include "cpu/vectors.h"

#if !defined(ROWS) || !defined(COLUMNS) || !defined(CODES_GROUP)
#error "rows of 8 bits need ROWS COLUMNS, and a format with CODES_GROUP"
#endif
#define STEP 64
#define UNIT 32
#define GROUPS 16 /* whose scales become numbers at a time */
#define BLOCK (GROUPS * CODES_GROUP)
#define LEAST 0x1p-120f
#define FOR_SUMS(r, n) UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int n = 0; n < COLUMNS; ++n)

typedef __global const char *rounded_t;
/* Floats behind the bytes of a line: scales up to there, then scaled sums, then integers. */
#define SCALES(K) (((K) + BLOCK - 1) / BLOCK * GROUPS)
#define LINE(K) ((K) + 8L * SCALES(K) + ((K) + 511) / 512 * 64)

typedef char BYTES __attribute__((ext_vector_type(4 * LANES)));
typedef short SHORTS __attribute__((ext_vector_type(2 * LANES)));
typedef CAT(int, LANES) INTS;

/* Sums of neighbours' products: an instruction. Where it has no name, compilers find it in these words if they know nothing
 * of the numbers, neither that they have fewer bits, nor that they are the same in all lanes. `zero` hides that. */
#if defined(__AVX2__) && LANES == 8
#define BY_NAME(name) __builtin_ia32_##name##256
#elif AVX512
#define BY_NAME(name) __builtin_ia32_##name##512
#endif
#ifdef BY_NAME
typedef char NAMED_BYTES __attribute__((vector_size(4 * LANES)));
typedef short NAMED_SHORTS __attribute__((vector_size(4 * LANES)));
INLINE SHORTS pairs_of_bytes(const INTS w, const INTS x, const INTS zero)
{
  return __builtin_astype(BY_NAME(pmaddubsw)((NAMED_BYTES)w, (NAMED_BYTES)x), SHORTS);
}
INLINE INTS pairs_of_shorts(const SHORTS w, const SHORTS x, const INTS zero)
{
  return __builtin_astype(BY_NAME(pmaddwd)((NAMED_SHORTS)w, (NAMED_SHORTS)x), INTS);
}
#else
INLINE SHORTS pairs_of_bytes(const INTS w, const INTS x, const INTS zero)
{
  typedef int wide __attribute__((ext_vector_type(2 * LANES)));
#if LANES == 4 /* without an instruction; and Oclgrind takes every second one of 16 bytes for uninitialized */
  typedef ushort ushorts __attribute__((ext_vector_type(2 * LANES)));
  const ushorts a = __builtin_astype(w, ushorts);
  const SHORTS b = __builtin_astype(x, SHORTS);
  wide sum = CONVERTED(wide, a & (ushort)255) * CONVERTED(wide, b << (short)8 >> (short)8);
  sum += CONVERTED(wide, a >> (ushort)8) * CONVERTED(wide, b >> (short)8);
#else
  typedef uchar ubytes __attribute__((ext_vector_type(4 * LANES)));
  const ubytes a = __builtin_astype(w ^ zero, ubytes);
  const BYTES b = __builtin_astype(x ^ zero, BYTES);
  wide sum = CONVERTED(wide, a.even) * CONVERTED(wide, b.even) + CONVERTED(wide, a.odd) * CONVERTED(wide, b.odd);
#endif
  sum = sum < (wide)(32767) ? sum : (wide)(32767); /* as the instruction does; codes of 4 bits make no such sums */
  sum = sum > (wide)(-32768) ? sum : (wide)(-32768);
  return CONVERTED(SHORTS, sum);
}
INLINE INTS pairs_of_shorts(const SHORTS w, const SHORTS x, const INTS zero)
{
  const SHORTS a = w ^ __builtin_astype(zero, SHORTS), b = x ^ __builtin_astype(zero, SHORTS);
  return CONVERTED(INTS, a.even) * CONVERTED(INTS, b.even) + CONVERTED(INTS, a.odd) * CONVERTED(INTS, b.odd);
}
#endif
INLINE INTS hidden_zeros(const int K)
{
  int zeros[LANES] ALIGNED(64);
  UNROLL for (int l = 0; l < LANES; ++l) zeros[l] = K % STEP * (l + 1);
  return *(const INTS *)zeros;
}

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
  __global float *scales = (__global float *)(line + K), *sums = scales + SCALES(K);
  __global int *zeros = (__global int *)(sums + SCALES(K));
  for (int g = first; g < first + GROUPS; ++g) {
    const int k = g * CODES_GROUP;
    float v[CODES_GROUP], scale = 0;
    int most = 0, sum = 0;
    if (k < K) {
      for (int n = 0; n < CODES_GROUP; ++n) v[n] = LOAD_A(a, A_INDEX(i, k + n, lda));
      for (int n = 0; n < CODES_GROUP; ++n) most = max(most, as_int(v[n]) & 0x7fffffff); /* as floats are ordered */
      const bool counts = most >= as_int(LEAST) && most < as_int(INFINITY);
      const float inverse = counts ? 127.0f / as_float(most) : 0;
      for (int u = 0; u < CODES_GROUP; u += UNIT) {
        int of_unit = 0;
        for (int n = u; n < u + UNIT; ++n) {
          const int near = nearest(v[n] * inverse);
          of_unit += near, line[k + place_of(n)] = near;
        }
        sum += of_unit, zeros[(k + u) / UNIT] = CODES_ZERO * of_unit;
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
