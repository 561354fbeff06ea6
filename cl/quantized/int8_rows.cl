/* int8_rows: few rows of A, rounded to 8 bits, by quantised weights, for CPU devices: sums of products of integers.
 *
 * round_a        of int8_lines.h makes lines of the rows of A
 * int8_rows      multiplies COLUMNS rows of B by ROWS lines at a time, 64 codes each in a step. A work-item takes `span`
 *                rows of B in the order in which they lie in memory.
 */
#include "quantized/int8_lines.h"

#if AVX512
/* acc + scales * products of 64 codes, of the groups with these scales: four products an integer in one instruction. */
INLINE VEC added_64(const VEC acc, const ushort16 *w, const ushort16 *x, const float *scales, const ushort zero)
{
  const int16 sums = as_int16(__builtin_ia32_vpdpbusd512((int16)(0), *(const int16 *)w, *(const int16 *)x));
  VEC scale = scales[0];
  if (CODES_GROUP < STEP) scale.hi = scales[1];
  return FMA_VEC(CONVERTED(VEC, sums), scale, acc);
}
#else
/* dot_32: sums of the products of 32 codes and 32 of x, in each lane of neighbours. */
#if defined(__AVX2__) && LANES == 8
typedef char bytes_32 __attribute__((vector_size(32)));
#define OF_PAIRS(w, x) as_short16(__builtin_ia32_pmaddubsw256(w, x)) /* w is unsigned; no pair is 2^15 */
#define OF_FOURS(pairs) CONVERTED(float8, as_int8(__builtin_ia32_pmaddwd256(pairs, (short16)(1))))
INLINE short16 pairs_32(const ushort16 codes, const ushort16 x)
{
  const bytes_32 w = (bytes_32)codes, v = (bytes_32)x;
#if CODES_SIGNED
  return OF_PAIRS(__builtin_ia32_psignb256(w, w), __builtin_ia32_psignb256(v, w));
#else
  return OF_PAIRS(w, v);
#endif
}
INLINE VEC dot_32(const ushort16 codes, const ushort16 x, const ushort zero) { return OF_FOURS(pairs_32(codes, x)); }
#else
/* Products of 16-bit integers in pairs: compilers have an instruction for these, unless they know that the numbers have
 * fewer bits. `zero` is 0, of which they do not know the highest bit of a byte. */
typedef char chars __attribute__((ext_vector_type(2 * LANES)));
typedef short shorts __attribute__((ext_vector_type(2 * LANES)));
typedef CAT(int, LANES) ints;
INLINE VEC dot_32(const ushort16 codes, const ushort16 x, const ushort zero)
{
  ints sum = 0;
  const ushort16 opaque = codes ^ zero;
  UNROLL for (int p = 0; p < 16 / LANES; ++p) {
    const shorts w = CONVERTED(shorts, ((const chars *)&opaque)[p]);
    const shorts v = CONVERTED(shorts, ((const chars *)&x)[p]) ^ (shorts)((short)zero);
    sum += CONVERTED(ints, w.even) * CONVERTED(ints, v.even) + CONVERTED(ints, w.odd) * CONVERTED(ints, v.odd);
  }
  return CONVERTED(VEC, sum);
}
#endif

/* acc + scales * products of 64 codes, of the groups with these scales. */
INLINE VEC added_64(const VEC acc, const ushort16 *w, const ushort16 *x, const float *scales, const ushort zero)
{
#if defined(OF_FOURS) && CODES_GROUP >= STEP && !CODES_SIGNED
  return FMA_VEC(OF_FOURS(pairs_32(w[0], x[0]) + pairs_32(w[1], x[1])), (VEC)(scales[0]), acc);
#else
  const VEC half_of = FMA_VEC(dot_32(w[0], x[0], zero), (VEC)(scales[0]), acc);
  return FMA_VEC(dot_32(w[1], x[1], zero), (VEC)(scales[CODES_GROUP < STEP]), half_of);
#endif
}

#endif

/* acc += products of each row of B with each line of A. */
INLINE void add_rows(
    VEC acc[ROWS][COLUMNS], const rounded_t x[ROWS], __global const uchar *const rows[COLUMNS], const int K, const long ldb)
{
  const long of_step = ldb * STEP / K;
  const ushort zero = K % STEP * 0x0404;
  long ahead = COLUMNS * ldb;
  for (int first = 0; first < K; first += BLOCK) {
    const int end = min(K, first + BLOCK);
    float16 scale[ROWS][COLUMNS];
    UNROLL for (int n = 0; n < COLUMNS; ++n) {
      float16 of_codes = 0, offset = 0;
      if (end - first == BLOCK) code_scales(rows[n], first, K, GROUPS, (float *)&of_codes, (float *)&offset);
      else code_scales(rows[n], first, K, (end - first) / CODES_GROUP, (float *)&of_codes, (float *)&offset);
      UNROLL for (int r = 0; r < ROWS; ++r) {
        __global const float16 *of_x = (__global const float16 *)(x[r] + K) + first / BLOCK;
        scale[r][n] = of_codes * of_x[0];
        const float16 rest = offset * of_x[SCALES(K) / GROUPS];
        UNROLL for (int p = 0; p < 16 / LANES; ++p) acc[r][n] += ((const VEC *)&rest)[p];
      }
    }
    for (int k = first; k < end; k += STEP, ahead += of_step) {
      const int g = (k - first) / CODES_GROUP;
      UNROLL for (int n = 0; n < COLUMNS; ++n) {
        PREFETCH(rows[n] + ahead);
        if (CODES_SIGNED) PREFETCH(rows[n] + ahead + of_step / 2); /* more than a cache line */
        ushort16 w[2];
        codes64(rows[n], k, K, w);
        UNROLL for (int r = 0; r < ROWS; ++r) {
          const ushort16 v[2] = {*(__global const ushort16 *)(x[r] + k), *(__global const ushort16 *)(x[r] + k + 32)};
          acc[r][n] = added_64(acc[r][n], w, v, (const float *)&scale[r][n] + g, zero);
        }
      }
    }
  }
}

INLINE float sum_of_lanes(const VEC acc)
{
  float lane[LANES];
  *(VEC *)lane = acc;
  UNROLL for (int half_of = LANES / 2; half_of; half_of /= 2)
    UNROLL for (int l = 0; l < half_of; ++l) lane[l] += lane[l + half_of];
  return lane[0];
}

WORK_OF_ENTRY void multiply_rows(
    __global const char *lines, __global const uchar *b, const long ldb, const int K, const int j0, const int j1, RESULT_ARGS)
{
  for (int j = j0; j < j1; j += COLUMNS) {
    __global const uchar *rows[COLUMNS];
    UNROLL for (int n = 0; n < COLUMNS; ++n) rows[n] = b + min(j + n, N - 1) * ldb;
    for (int m0 = 0; m0 < M; m0 += ROWS) {
      rounded_t x[ROWS];
      VEC acc[ROWS][COLUMNS];
      UNROLL for (int r = 0; r < ROWS; ++r) x[r] = lines + min(m0 + r, M - 1) * LINE(K);
      FOR_SUMS(r, n) acc[r][n] = (VEC)(0);
      add_rows(acc, x, rows, K, ldb);
      FOR_SUMS(r, n) if (m0 + r < M && j + n < j1)
        STORE_RESULT(m0 + r, j + n, sum_of_lanes(acc[r][n]), RESULT);
    }
  }
}

__kernel ONE_WIDE_ITEM void int8_rows(GEMM_ARGS, __global const char *lines, const int span)
{
  GEMM_BEGIN;
  const int j0 = get_group_id(0) * span;
  multiply_rows(lines + BATCH_ENTRY * M * LINE(K), b, ldb, K, j0, min(N, j0 + span), RESULT);
}
