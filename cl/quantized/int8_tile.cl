/* int8_tile: rows of A, rounded to 8 bits, by quantised weights, for CPU devices, where there are many rows.
 *
 *   round_a        of int8_lines.h makes lines of the rows of A
 *   int8_tile      takes COLUMNS rows of B at a time, of these PART weights, and makes a panel of their codes:
 *
 *                     | word of column 0 | column 1 | ... |      a word of 32 bits is TOGETHER codes along K
 *                     | the next TOGETHER of column 0 | ...
 *
 *                  It multiplies all rows of A by the panel, ROWS at a time: a lane of a vector is a column, a word of x
 *                  is in all lanes. So a code is unpacked once for CHUNK rows, and lanes are never summed.
 *                  A work-item takes `span` rows of B.
 *
 * Sums of UNIT products are whole numbers of 32 bits, or with AVX2 of 16 bits where codes are below 16:
 * 32 * 15 * 127 / 2 is below 2^15.
 */
#include "quantized/int8_lines.h"

#define TOGETHER (4 / X_BYTES)
#define PART 512
#define UNIT 32
#define CHUNK 64
#define VECS (COLUMNS / LANES)
#define FOR_TILE(r, n) UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int n = 0; n < VECS; ++n)

#if LANES == 16 && !AVX512 /* Intel's runtime: 23 ms unrolled, 21 not; PoCL with AVX2 and 8 bits: 19, 24 */
#define UNROLL_WORDS
#else
#define UNROLL_WORDS UNROLL
#endif

typedef CAT(int, LANES) INTS;
#if AVX512 /* four products of bytes, or two of 16 bits, and their sum in one instruction */
typedef INTS SUMS;
#if TOGETHER == 4
#define WITH_PRODUCTS(sums, w, x) as_int16(__builtin_ia32_vpdpbusd512(sums, w, x))
#else
#define WITH_PRODUCTS(sums, w, x) as_int16(__builtin_ia32_vpdpwssd512(sums, w, x))
#endif
#define OF_SUMS(sums) CONVERTED(VEC, sums)
#elif TOGETHER == 4
typedef char bytes_32 __attribute__((vector_size(32)));
typedef short16 SUMS;
#define WITH_PRODUCTS(sums, w, x) ((sums) + as_short16(__builtin_ia32_pmaddubsw256((bytes_32)(w), (bytes_32)(x))))
#define OF_SUMS(sums) CONVERTED(VEC, as_int8(__builtin_ia32_pmaddwd256(sums, (short16)(1))))
#else
typedef INTS SUMS;
typedef short shorts __attribute__((ext_vector_type(2 * LANES)));
#if defined(__AVX2__) && LANES == 8
#define WITH_PRODUCTS(sums, w, x) ((sums) + as_int8(__builtin_ia32_pmaddwd256(as_short16(w), as_short16(x))))
#else
INLINE INTS of_pairs(const INTS w, const INTS x)
{
  const shorts a = *(const shorts *)&w, b = *(const shorts *)&x;
  return CONVERTED(INTS, a.even) * CONVERTED(INTS, b.even) + CONVERTED(INTS, a.odd) * CONVERTED(INTS, b.odd);
}
#define WITH_PRODUCTS(sums, w, x) ((sums) + of_pairs(w, x))
#define HIDDEN(x, zero) ((INTS)(x) ^ (zero))
#endif
#define OF_SUMS(sums) CONVERTED(VEC, sums)
#endif
#ifndef HIDDEN
#define HIDDEN(x, zero) (x)
#endif

/* What a work-item makes of PART weights of COLUMNS rows of B. */
typedef struct {
  int codes[PART / TOGETHER][COLUMNS] ALIGNED(64);
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
    ushort16 w[4][2];
    UNROLL for (int r = 0; r < 4; ++r) codes64(rows[r], k, K, w[r]);
#if TOGETHER == 4
    PUT(panel->codes[(k - first) / 4], STEP / 4, w);
#else
    short wide[4][STEP] ALIGNED(64);
    for (int r = 0; r < 4; ++r)
      for (int p = 0; p < STEP; ++p) wide[r][p] = ((const char *)w[r])[p];
    PUT(panel->codes[(k - first) / 2], STEP / 2, wide);
#endif
  }
}

typedef __global const x_number *x_t;

/* AVX-VNNI adds four products of bytes to each integer in one instruction. The processor may have it though the compiler
 * does not know, so it is asked, and the instruction stands here as bytes, with fixed registers. The sums are the same.
 *
 *   ymm8, ymm9    UNIT / 8 words of 16 columns, one after the other      ymm10  a word of x
 *   ymm0 to ymm7  sums: of row 0 columns 0 to 7, 8 to 15; of row 1 ..
 */
#if TOGETHER == 4 && LANES == 8 && defined(__x86_64__) && ROWS == 4 && VECS == 2
#define MAY_HAVE_VNNI 1
INLINE bool has_vnni(void)
{
  uint a = 7, b, c = 0, d;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  if (a < 1) return false;
  a = 7, c = 1;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return a >> 4 & 1;
}

#define VPDPBUSD(of_codes, sums) ".byte 0xc4, 0xc2, " of_codes ", 0x50, " sums "\n\t" /* ymm10 is the last operand */
#define ADD_ROW(x, at, low, high) \
  "vpbroadcastd " at "(" x "), %%ymm10\n\t" VPDPBUSD("0x3d", low) VPDPBUSD("0x35", high)
#define ADD_WORDS(at, low, high)                                                     \
  "vmovdqa " low "(%[w]), %%ymm8\n\tvmovdqa " high "(%[w]), %%ymm9\n\t"             \
  ADD_ROW("%[x0]", at, "0xc2", "0xca") ADD_ROW("%[x1]", at, "0xd2", "0xda")          \
  ADD_ROW("%[x2]", at, "0xe2", "0xea") ADD_ROW("%[x3]", at, "0xf2", "0xfa")
#define CLEAR(n) "vpxor %%ymm" n ", %%ymm" n ", %%ymm" n "\n\t"
#define PUT_SUMS(n, at) "vmovdqa %%ymm" n ", " at "(%[out])\n\t"
INLINE void unit_by_vnni(INTS out[ROWS][VECS], const int *words, const x_t x[ROWS], const int k)
{
  __asm__ volatile(
      CLEAR("0") CLEAR("1") CLEAR("2") CLEAR("3") CLEAR("4") CLEAR("5") CLEAR("6") CLEAR("7")
      ADD_WORDS("0", "0", "32") ADD_WORDS("4", "64", "96") ADD_WORDS("8", "128", "160") ADD_WORDS("12", "192", "224")
      ADD_WORDS("16", "256", "288") ADD_WORDS("20", "320", "352") ADD_WORDS("24", "384", "416")
      ADD_WORDS("28", "448", "480")
      PUT_SUMS("0", "0") PUT_SUMS("1", "32") PUT_SUMS("2", "64") PUT_SUMS("3", "96")
      PUT_SUMS("4", "128") PUT_SUMS("5", "160") PUT_SUMS("6", "192") PUT_SUMS("7", "224")
      :
      : [w] "r"(words), [out] "r"(out), [x0] "r"(x[0] + k), [x1] "r"(x[1] + k), [x2] "r"(x[2] + k), [x3] "r"(x[3] + k)
      : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "memory");
}
#else
#define MAY_HAVE_VNNI 0
#define has_vnni() false
#endif

/* Sums of the products of UNIT weights from k on. `zero` is 0 in all lanes, which compilers do not know: of a word that
 * is the same in all lanes they do not find that its products are added in pairs. */
INLINE void multiply_unit(
    VEC out[ROWS][VECS], const int *panel_words, const x_t x[ROWS], const int k, const bool vnni, const INTS zero)
{
#if MAY_HAVE_VNNI
  if (vnni) {
    INTS sums[ROWS][VECS];
    unit_by_vnni(sums, panel_words, x, k);
    FOR_TILE(r, n) out[r][n] = CONVERTED(VEC, sums[r][n]);
    return;
  }
#endif
  SUMS part[ROWS][VECS];
  FOR_TILE(r, n) part[r][n] = 0;
  UNROLL_WORDS for (int q = 0; q < UNIT / TOGETHER; ++q) {
    const INTS *words = (const INTS *)(panel_words + q * COLUMNS);
    INTS w[VECS];
    UNROLL for (int n = 0; n < VECS; ++n) w[n] = words[n];
    UNROLL for (int r = 0; r < ROWS; ++r) {
      const INTS of_x = HIDDEN(((__global const int *)(x[r] + k))[q], zero);
      UNROLL for (int n = 0; n < VECS; ++n) part[r][n] = WITH_PRODUCTS(part[r][n], w[n], of_x);
    }
  }
  FOR_TILE(r, n) out[r][n] = OF_SUMS(part[r][n]);
}

/* sums += products of weights from `first` up to `end` with each line. */
INLINE void add_panel(
    VEC sums[ROWS][VECS], const panel_t *panel, const x_t x[ROWS], const int first, const int end, const int K, const bool vnni)
{
  INTS zero;
  UNROLL for (int l = 0; l < LANES; ++l) ((int *)&zero)[l] = K % STEP * (l + 1);
  for (int k = first; k < end; k += UNIT) {
    VEC part[ROWS][VECS];
    multiply_unit(part, panel->codes[(uint)(k - first) / TOGETHER], x, k, vnni, zero);
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
  const bool vnni = has_vnni();
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
          x_t x[ROWS];
          UNROLL for (int r = 0; r < ROWS; ++r)
            x[r] = (x_t)(lines + (chunk + min(i + r, rows - 1)) * LINE(K));
          add_panel(&sums[i], &panel, x, first, end, K, vnni);
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
