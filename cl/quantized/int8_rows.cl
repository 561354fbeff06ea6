/* int8_rows: few rows of A, rounded to 8 bits, by quantised weights, for CPU devices: sums of products of integers.
 *
 * round_a        of int8_lines.h makes lines of the rows of A
 * int8_rows      multiplies COLUMNS rows of B by ROWS lines at a time, 64 codes each in a step. A work-item takes `span`
 *                rows of B in the order in which they lie in memory.
 */
#include "quantized/int8_lines.h"

#define VECS (16 / LANES) /* of 64 codes */

/* Sums of products of codes, less CODES_ZERO, and x in pairs. */
INLINE SHORTS pairs(const INTS codes, const INTS x, const INTS zero)
{
#if CODES_BITS == 4
  const SHORTS sums = pairs_of_bytes(codes, x, zero);
  return CODES_ZERO ? sums - pairs_of_bytes((INTS)(CODES_ZERO * 0x01010101u), x, zero) : sums;
#else /* a code without its sign, and x with it */
  const BYTES w = __builtin_astype(codes, BYTES) ^ (BYTES)(-CODES_ZERO), negative = w < (BYTES)(0);
  const BYTES size = (w ^ negative) - negative, v = (__builtin_astype(x, BYTES) ^ negative) - negative;
  return pairs_of_bytes(__builtin_astype(size, INTS), __builtin_astype(v, INTS), zero);
#endif
}

/* acc + scales * products of 64 codes, of the groups with these scales. */
INLINE VEC added_64(
    const VEC acc, const ushort16 *codes, const ushort16 *x, const float *scales, const INTS zero)
{
#define SUMS(pairs) CONVERTED(VEC, pairs_of_shorts(pairs, (SHORTS)(1), zero))
#define PAIRS(p) pairs(((const INTS *)codes)[p], ((const INTS *)x)[p], zero)
#if LANES == 16
  VEC scale = scales[0];
  if (CODES_GROUP < STEP) scale.hi = scales[1];
  return FMA_VEC(SUMS(PAIRS(0)), scale, acc);
#elif LANES == 8 && CODES_GROUP >= STEP && CODES_BITS == 4
  return FMA_VEC(SUMS(PAIRS(0) + PAIRS(1)), (VEC)(scales[0]), acc);
#else
  VEC sum = acc;
  UNROLL for (int p = 0; p < VECS; ++p)
    sum = FMA_VEC(SUMS(PAIRS(p)), (VEC)(scales[p * 4 * LANES / CODES_GROUP]), sum);
  return sum;
#endif
}

/* acc += products of each row of B with each line of A. */
INLINE void add_rows(
    VEC acc[ROWS][COLUMNS], const rounded_t x[ROWS], __global const uchar *const rows[COLUMNS], const int K, const long ldb)
{
  const long of_step = ldb * STEP / K;
  const INTS zero = hidden_zeros(K);
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
        if (CODES_BITS == 8) PREFETCH(rows[n] + ahead + of_step / 2); /* more than a cache line */
        ushort16 codes[2];
        codes64(rows[n], k, K, codes);
        UNROLL for (int r = 0; r < ROWS; ++r) {
          const ushort16 v[2] = {*(__global const ushort16 *)(x[r] + k), *(__global const ushort16 *)(x[r] + k + 32)};
          acc[r][n] = added_64(acc[r][n], codes, v, (const float *)&scale[r][n] + g, zero);
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
