/* rows_cpu: few rows of A by quantised weights, for CPU devices. Each weight becomes a number in a vector register for
 * ROWS rows.
 *
 *          k ->  32 weights
 *   B     |====|====|====|====  j       A work-item multiplies COLUMNS rows of B at a time, each a chain of vectors of
 *         |====|====|====|====  j + 1   sums for every row of A, and adds the lanes at the end. It takes `span` rows of
 *   A     |====|====|====|====  i       B in the order in which they lie in memory.
 *
 * Macros: ROWS, COLUMNS; those of gemm.h, of vectors.h and of the format, whose header comes before. It may define
 * NIBBLE_VALUES and what belongs to it (formats/bytes.h).
 * Preconditions: A is stored along K.
 */
#include "include/gemm.h"
#include "cpu/vector_loads.h"
#include "quantized/rounded.h"

#if !defined(ROWS) || !defined(COLUMNS)
#error "rows_cpu.cl needs ROWS COLUMNS"
#endif
#define RUN 32
#define PARTS (RUN / LANES)
#define FOR_SUMS(r, n) \
  UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int n = 0; n < COLUMNS; ++n)

/* Prefetches what is `ahead` of rows of B, in the rows that come next: each is too short for the processor's own prefetching. */
INLINE void prefetch_next(__global const uchar *const rows[COLUMNS], const long ahead)
{
  UNROLL for (int n = 0; n < COLUMNS; ++n) PREFETCH(rows[n] + ahead);
}

#if defined(NIBBLE_VALUES) && (LANES == 16 || LANES == 8 && !CODES_EVEN_ODD)
/* Scales become numbers before, GROUPS of them at a time. A code of 4 bits stands for one of 16 numbers: where
 * one instruction looks up 16 of them, groups share a table of these, else their scale and offset. */
#define STEP 64
#define GROUPS 16
#define BLOCK (GROUPS * CODES_GROUP)
#define OF_CODES(codes, n, g) ROUNDED(NIBBLE_VALUES(codes, scale[n][g], offset[n][g]))
#if TO_AVX512
#define SHARED(n, g) OF_CODES((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), n, g)
#define WEIGHTS(codes, n, g) looked_up(shared, codes)
#else
#define SHARED(n, g) 0
#define WEIGHTS(codes, n, g) OF_CODES(codes, n, g)
#endif
/* HAS_AVX512: the instruction takes the low 4 bits of a code. */
#define KEEP_4(zero) (HAS_AVX512 ? -1 : 15 + (zero))
/* The numbers of `table` with these codes. Compilers to SPIR-V find the instruction in these words; not in a loop, whose codes
 * they take apart before they see all of them. */
INLINE float16 looked_up(const float16 table, const int16 c)
{
#if HAS_AVX512
  return as_float16(__builtin_ia32_permvarsf512(table, c));
#else
#define NUMBER(lane) table[c.s##lane]
  return (float16)(NUMBER(0), NUMBER(1), NUMBER(2), NUMBER(3), NUMBER(4), NUMBER(5), NUMBER(6), NUMBER(7), NUMBER(8),
                   NUMBER(9), NUMBER(a), NUMBER(b), NUMBER(c), NUMBER(d), NUMBER(e), NUMBER(f));
#endif
}
typedef float scales_t[COLUMNS][GROUPS];

/* acc += products of `runs` runs from weight k on, a multiple of STEP. `zero` is 0, which compilers do not know. */
INLINE void add_step(
    VEC acc[ROWS][COLUMNS], __global const A_T *const x[ROWS], __global const uchar *const rows[COLUMNS],
    const scales_t scale, const scales_t offset, const int first, const int k, const int runs, const int zero)
{
  float16 number[ROWS][2][2];
  UNROLL for (int r = 0; r < ROWS; ++r)
    UNROLL for (int run = 0; run < runs; ++run) {
      float16 of_x[2];
      UNROLL for (int p = 0; p < PARTS; ++p) ((VEC *)of_x)[p] = VEC_A(x[r] + k + run * RUN + p * LANES);
      number[r][run][0] = CODES_EVEN_ODD ? (float16)(of_x[0].even, of_x[1].even) : of_x[0];
      number[r][run][1] = CODES_EVEN_ODD ? (float16)(of_x[0].odd, of_x[1].odd) : of_x[1];
    }
  const int at = nibbles_at(k);
  UNROLL for (int n = 0; n < COLUMNS; ++n)
    UNROLL for (int run = 0; run < runs; ++run) {
      const int g = (uint)(k - first) / CODES_GROUP + run * RUN / CODES_GROUP;
      const float16 shared = SHARED(n, g);
      int16 codes[2];
      nibbles32(rows[n] + at, run, 4 + zero, KEEP_4(zero), codes, codes + 1);
      UNROLL for (int p = 0; p < 2; ++p) {
        const float16 w = WEIGHTS(codes[p], n, g);
        UNROLL for (int part = 0; part < PARTS / 2; ++part)
          UNROLL for (int r = 0; r < ROWS; ++r)
            acc[r][n] = FMA_VEC(((const VEC *)&w)[part], ((const VEC *)&number[r][run][p])[part], acc[r][n]);
      }
    }
}

/* acc += products of each row of B with each row of A. */
INLINE void add_rows(
    VEC acc[ROWS][COLUMNS], __global const A_T *const x[ROWS], __global const uchar *const rows[COLUMNS], const int K,
    const long ldb)
{
  scales_t scale, offset;
  const long of_step = ldb * STEP / K;
  long ahead = COLUMNS * ldb;
  for (int first = 0; first < K; first += BLOCK) {
    const bool whole = first + BLOCK <= K;
    const int end = whole ? first + BLOCK : K;
    UNROLL for (int n = 0; n < COLUMNS; ++n) {
      if (whole) code_scales(rows[n], first, K, GROUPS, scale[n], offset[n]);
      else code_scales(rows[n], first, K, (end - first) / CODES_GROUP, scale[n], offset[n]);
    }
    int k = first;
    for (; k + STEP <= end; k += STEP, ahead += of_step) {
      prefetch_next(rows, ahead);
      add_step(acc, x, rows, scale, offset, first, k, 2, K % RUN);
    }
    if (k < end) add_step(acc, x, rows, scale, offset, first, k, 1, K % RUN);
  }
}
#else
/* acc += products of each row of B with each row of A. */
INLINE void add_rows(
    VEC acc[ROWS][COLUMNS], __global const A_T *const x[ROWS], __global const uchar *const rows[COLUMNS], const int K,
    const long ldb)
{
  const long of_run = ldb * RUN / K;
  long ahead = COLUMNS * ldb;
  for (int k = 0; k < K; k += RUN, ahead += of_run) {
    prefetch_next(rows, ahead);
    VEC number[ROWS][PARTS];
    UNROLL for (int r = 0; r < ROWS; ++r)
      UNROLL for (int p = 0; p < PARTS; ++p) number[r][p] = VEC_A(x[r] + k + p * LANES);
    UNROLL for (int n = 0; n < COLUMNS; ++n) {
      float16 w[2];
      weights32(rows[n], k, K, w, w + 1);
      w[0] = ROUNDED(w[0]), w[1] = ROUNDED(w[1]);
      UNROLL for (int p = 0; p < PARTS; ++p)
        UNROLL for (int r = 0; r < ROWS; ++r) acc[r][n] = FMA_VEC(((const VEC *)w)[p], number[r][p], acc[r][n]);
    }
  }
}
#endif

WORK_OF_ENTRY void multiply_rows(
    __global const A_T *a, const long lda, __global const uchar *b, const long ldb, const int K, const int j0, const int j1,
    RESULT_ARGS)
{
  for (int j = j0; j < j1; j += COLUMNS) {
    __global const uchar *rows[COLUMNS];
    UNROLL for (int n = 0; n < COLUMNS; ++n) rows[n] = b + min(j + n, N - 1) * ldb;
    for (int m0 = 0; m0 < M; m0 += ROWS) {
      __global const A_T *x[ROWS];
      VEC acc[ROWS][COLUMNS];
      UNROLL for (int r = 0; r < ROWS; ++r) x[r] = a + min(m0 + r, M - 1) * lda;
      FOR_SUMS(r, n) acc[r][n] = (VEC)(0);
      add_rows(acc, x, rows, K, ldb);
      FOR_SUMS(r, n)
      {
        float sum = 0;
        UNROLL for (int lane = 0; lane < LANES; ++lane) sum += ((const float *)&acc[r][n])[lane];
        if (m0 + r < M && j + n < j1) STORE_RESULT(m0 + r, j + n, sum, RESULT);
      }
    }
  }
}

__kernel ONE_WIDE_ITEM void quantized_rows(GEMM_ARGS, const int span)
{
  GEMM_BEGIN;
  const int j0 = get_group_id(0) * span;
  multiply_rows(a, lda, b, ldb, K, j0, min(N, j0 + span), RESULT);
}
