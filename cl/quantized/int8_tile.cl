/* int8_tile: rows of A, rounded to 8 bits, by quantised weights, for CPU devices, where there are many rows.
 *
 *   round_a        of int8_lines.h makes lines of the rows of A
 *   int8_tile      takes COLUMNS rows of B at a time, of these PART weights, and makes a panel of their codes:
 *
 *                     | word of column 0 | column 1 | ... |      a word of 32 bits is four codes along K
 *                     | the next four of column 0 | ...
 *
 *                  It multiplies all rows of A by the panel, ROWS at a time: a lane of a vector is a column, a word of x
 *                  is in all lanes. So a code is unpacked once for CHUNK rows, and lanes are never summed.
 *                  A work-item takes `span` rows of B.
 *
 * Sums of UNIT products are whole numbers of 32 bits where one instruction adds four products, else of 16 bits: of codes of
 * 4 bits, as 32 * 15 * 127 / 2 is below 2^15. A code of 8 bits is HALVES of these, in two panels.
 */
#include "quantized/int8_lines.h"

#define PART 512
#define CHUNK 64
#define VECS (COLUMNS / LANES)
#define FOR_TILE(r, n) UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int n = 0; n < VECS; ++n)

#if AVX512
#define HALVES 1
typedef INTS SUMS;
#define WITH_PRODUCTS(sums, w, x) as_int16(__builtin_ia32_vpdpbusd512(sums, w, x))
#define OF_SUMS(sums, by) sums
#else
#define HALVES (CODES_BITS / 4)
typedef SHORTS SUMS;
#define WITH_PRODUCTS(sums, w, x) ((sums) + pairs_of_bytes(w, x, zero))
#define OF_SUMS(sums, by) pairs_of_shorts(sums, (SHORTS)(by), zero)
#endif

/* What a work-item makes of PART weights of COLUMNS rows of B. */
typedef struct {
  int codes[HALVES][PART / 4][COLUMNS] ALIGNED(64);
  float scales[PART / CODES_GROUP][COLUMNS] ALIGNED(64), offsets[PART / CODES_GROUP][COLUMNS] ALIGNED(64);
} panel_t;

/* to[i][0 to 3] = word i of the four. */
INLINE void put_words(int (*to)[COLUMNS], const int count, const int *a, const int *b, const int *c, const int *d)
{
  for (int i = 0; i < count; i += 4) {
    const int4 p = *(const int4 *)(a + i), q = *(const int4 *)(b + i), r = *(const int4 *)(c + i), s = *(const int4 *)(d + i);
    const int4 pq = (int4)(p.x, q.x, p.y, q.y), rs = (int4)(r.x, s.x, r.y, s.y);
    const int4 last_pq = (int4)(p.z, q.z, p.w, q.w), last_rs = (int4)(r.z, s.z, r.w, s.w);
    *(int4 *)to[i] = (int4)(pq.x, pq.y, rs.x, rs.y), *(int4 *)to[i + 1] = (int4)(pq.z, pq.w, rs.z, rs.w);
    *(int4 *)to[i + 2] = (int4)(last_pq.x, last_pq.y, last_rs.x, last_rs.y);
    *(int4 *)to[i + 3] = (int4)(last_pq.z, last_pq.w, last_rs.z, last_rs.w);
  }
}

/* Columns n to n + 3 of the panel. */
INLINE void unpack(
    panel_t *panel, __global const uchar *const rows[4], const int n, const int first, const int end, const int K)
{
  float scales[4][GROUPS] ALIGNED(64), offsets[4][GROUPS] ALIGNED(64);
  UNROLL for (int r = 0; r < 4; ++r) {
    UNROLL for (int g = 0; g < GROUPS; ++g) scales[r][g] = 0, offsets[r][g] = 0;
    code_scales(rows[r], first, K, (end - first) / CODES_GROUP, scales[r], offsets[r]);
  }
#define PUT(to, count, of)                                                                                    \
  put_words((int (*)[COLUMNS]) & (to)[n], count, (const int *)(of)[0], (const int *)(of)[1], (const int *)(of)[2], \
            (const int *)(of)[3])
  PUT(panel->scales[0], PART / CODES_GROUP, scales);
  PUT(panel->offsets[0], PART / CODES_GROUP, offsets);
  for (int k = first; k < end; k += STEP) {
    ushort16 w[4][2] ALIGNED(64);
    UNROLL for (int r = 0; r < 4; ++r) codes64(rows[r], k, K, w[r]);
    if (HALVES == 2) {
      ushort16 high[4][2];
      UNROLL for (int r = 0; r < 4; ++r)
        UNROLL for (int p = 0; p < 2; ++p) high[r][p] = w[r][p] >> (ushort)4 & (ushort)0x0f0f, w[r][p] &= (ushort)0x0f0f;
      PUT(panel->codes[HALVES - 1][(k - first) / 4], STEP / 4, high);
    }
    PUT(panel->codes[0][(k - first) / 4], STEP / 4, w);
  }
}

/* Sums of the products of UNIT weights, `at` from the first of the panel on, and of x, whose sums times CODES_ZERO are
 * of_zero. `zero` is 0 in all lanes, which compilers do not know. */
INLINE void multiply_unit(
    VEC out[ROWS][VECS], const panel_t *panel, const int at, const rounded_t x[ROWS], const int of_zero[ROWS], const INTS zero)
{
  SUMS part[HALVES][ROWS][VECS];
  UNROLL for (int h = 0; h < HALVES; ++h) FOR_TILE(r, n) part[h][r][n] = 0;
  UNROLL for (int q = 0; q < UNIT / 4; ++q)
    UNROLL for (int h = 0; h < HALVES; ++h) {
      const INTS *words = (const INTS *)panel->codes[h][at / 4 + q];
      INTS w[VECS];
      UNROLL for (int n = 0; n < VECS; ++n) w[n] = words[n];
      UNROLL for (int r = 0; r < ROWS; ++r) {
        const INTS of_x = ((__global const int *)x[r])[q];
        UNROLL for (int n = 0; n < VECS; ++n) part[h][r][n] = WITH_PRODUCTS(part[h][r][n], w[n], of_x);
      }
    }
  FOR_TILE(r, n)
  {
    INTS sum = OF_SUMS(part[0][r][n], 1);
    if (HALVES == 2) sum += OF_SUMS(part[HALVES - 1][r][n], 16);
    out[r][n] = CONVERTED(VEC, CODES_ZERO ? sum - of_zero[r] : sum);
  }
}

/* sums += products of weights from `first` up to `end` with each line. */
INLINE void add_panel(
    VEC sums[ROWS][VECS], const panel_t *panel, const rounded_t x[ROWS], const int first, const int end, const int K)
{
  const INTS zero = hidden_zeros(K);
  for (int k = first; k < end; k += UNIT) {
    VEC part[ROWS][VECS];
    rounded_t of_unit[ROWS];
    int of_zero[ROWS];
    UNROLL for (int r = 0; r < ROWS; ++r)
      of_unit[r] = x[r] + k, of_zero[r] = ((__global const int *)(x[r] + K))[2 * SCALES(K) + k / UNIT];
    multiply_unit(part, panel, k - first, of_unit, of_zero, zero);
    const uint g = (uint)k / CODES_GROUP, own = (uint)(k - first) / CODES_GROUP;
    UNROLL for (int r = 0; r < ROWS; ++r) {
      __global const float *of_x = (__global const float *)(x[r] + K) + g;
      UNROLL for (int n = 0; n < VECS; ++n)
        sums[r][n] = FMA_VEC(part[r][n] * ((const VEC *)panel->scales[own])[n], (VEC)(of_x[0]), sums[r][n]);
      if (k % CODES_GROUP == 0)
        UNROLL for (int n = 0; n < VECS; ++n)
          sums[r][n] = FMA_VEC(((const VEC *)panel->offsets[own])[n], (VEC)(of_x[SCALES(K)]), sums[r][n]);
    }
  }
}

WORK_OF_ENTRY void multiply_rows(
    __global const char *lines, __global const uchar *b, const long ldb, const int K, const int j0, const int j1, RESULT_ARGS)
{
  panel_t panel;
  VEC sums[CHUNK][VECS];
  for (int chunk = 0; chunk < M; chunk += CHUNK) {
    const int rows = min(CHUNK, M - chunk);
    for (int j = j0; j < j1; j += COLUMNS) {
      for (int i = 0; i < CHUNK; ++i)
        UNROLL for (int n = 0; n < VECS; ++n) sums[i][n] = (VEC)(0);
      for (int first = 0; first < K; first += PART) {
        const int end = min(K, first + PART);
        for (int n = 0; n < COLUMNS; n += 4) {
          __global const uchar *rows_of_b[4];
          UNROLL for (int r = 0; r < 4; ++r) rows_of_b[r] = b + min(j + n + r, N - 1) * ldb;
          unpack(&panel, rows_of_b, n, first, end, K);
        }
        for (int i = 0; i < rows; i += ROWS) {
          rounded_t x[ROWS];
          UNROLL for (int r = 0; r < ROWS; ++r)
            x[r] = lines + (chunk + min(i + r, rows - 1)) * LINE(K);
          add_panel(&sums[i], &panel, x, first, end, K);
        }
      }
      for (int i = 0; i < rows; ++i)
        for (int n = 0; n < min(COLUMNS, j1 - j); ++n)
          STORE_RESULT(chunk + i, j + n, ((const float *)sums[i])[n], RESULT);
    }
  }
}

__kernel ONE_WIDE_ITEM void int8_tile(GEMM_ARGS, __global const char *lines, const int span)
{
  GEMM_BEGIN;
  const int j0 = get_group_id(0) * span;
  multiply_rows(lines + BATCH_ENTRY * M * LINE(K), b, ldb, K, j0, min(N, j0 + span), RESULT);
}
