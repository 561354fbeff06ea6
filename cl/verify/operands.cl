/* verify/operands: what is known of a product before it is looked at, with random signs r  (Freivalds 1977).
 *
 *   verify_b     x_k = sum_j B(k, j) r_j                  size_x_k = sum_j |B(k, j)|                   before the product
 *   verify_c     u_i = sum_j (beta C(i, j) + bias) r_j    size_u_i = sum_j |beta C(i, j)| + |bias|     before the product, without marked columns
 *   verify_fold  adds the partial sums of x, where B is stored along k
 *   verify_a     t_i = sum_k A(i, k) x_k                  size_t_i = sum_k |A(i, k)| size_x_k          where A is stored along i
 *
 * `rows` and `columns` hold the last call + 1 in which a row of A and a column of B had a NaN or an infinity.
 * Macros: those of verify/sums.h. docs/verification.md says what all this is for.
 */
#include "verify/sums.h"

/* A product of a list or a stack is dimension 2. A kernel uses some of its sizes. */
#if LISTED
#define ENTRY_BEGIN                                                                                        \
  const bool is_listed = true;                                                                             \
  LISTED_PRODUCT(BATCH_ENTRY);                                                                             \
  (void)M, (void)N, (void)K, (void)lda, (void)ldb, (void)ldo, (void)c_rs, (void)c_cs, (void)bias_stride, (void)alpha, (void)beta
#else
#define ENTRY_BEGIN GEMM_BEGIN
#endif

/* WALK: TERMS(HOW, FETCH_LINES, at) for each element `at` of this work-item's slice and part, of VEC lines from line0 on.
 * FETCH_LINES is ENTIRE, or CLAMPED where there are fewer lines. With care, which is rare: CLAMPED. */
#define WALK(HOW, lines, length, TERMS)                                                                                  \
  for (int at_ = (int)get_group_id(1) * SLICES + (int)get_local_id(0) / ACROSS; at_ < (length); at_ += PARTS * SLICES) { \
    if (!HOW && line0 + VEC <= (lines)) TERMS(HOW, ENTIRE, at_);                                                         \
    else TERMS(HOW, CLAMPED, at_);                                                                                       \
  }
#define ENTIRE(FETCH_VEC, LOAD_ONE, p, lines, v) FETCH_VEC((p) + line0, v)
#define CLAMPED(FETCH_VEC, LOAD_ONE, p, lines, v) EACH for (int e = 0; e < VEC; ++e) v[e] = LOAD_ONE(p, LINE(e, lines))
#define FIRST_OF_GROUP ((int)get_group_id(0) * ACROSS * VEC)
#define FIRST_OF_WALK (((int)get_group_id(0) * ACROSS + (int)get_local_id(0) % ACROSS) * VEC)
#define COUNT_OF(which) COUNT_OF_(which)
#define COUNT_OF_(count, lanes, owners) count
#define STORE(which, lines, apart, target, target_size) STORE_(which, lines, apart, target, target_size)
#define STORE_(count, lanes, owners, lines, apart, target, target_size)              \
  EACH for (int r = 0; r < count; ++r)                                              \
    if (get_local_id(0) < owners && line0 + r < (lines)) {                          \
      target[(long)get_group_id(1) * (apart) + line0 + r] = s.sum[r];               \
      target_size[(long)get_group_id(1) * (apart) + line0 + r] = s.size[r];         \
    }

/* ---- B r */

#define SIZE_B(v) size_of(v, LEAST_B, whole)
#if TRANS_B
#if WEIGHTS /* VEC is a run, of which K has whole ones */
#define LINES_OF_B(FETCH_LINES, at) run_of_b(b, ldb, min(line0, K - VEC), at, K, v)
#else
#define LINES_OF_B(FETCH_LINES, at) FETCH_LINES(fetch_b, LOAD_B, b + (long)(at) * ldb, K, v)
#endif
#define WALK_B(HOW, FETCH_LINES, at) do {                                              \
    const uint signs = signs_from(at, seed);                                           \
    ACC_T v[VEC];                                                                      \
    LINES_OF_B(FETCH_LINES, at);                                                       \
    EACH for (int e = 0; e < VEC; ++e) TAKE_SIGNED(HOW, e, e, v[e], signs, 0, SIZE_B); \
  } while (0)
#define FIRST_LINE_B FIRST_OF_WALK
#define FIRST_OF_GROUP_B FIRST_OF_GROUP
#define LINES_B OF_WALK
#define SUM_B(HOW) WALK(HOW, K, length, WALK_B)
#else
#define DOT_B(HOW, COUNT, at) \
  SIGNED_LINES(HOW, COUNT, FETCH(COUNT, fetch_b, LOAD_B, b + LINE(r, K) * ldb + (at), v), at, SIZE_B)
#define FIRST_LINE_B ((int)get_group_id(0) * ROWS)
#define FIRST_OF_GROUP_B line0
#define LINES_B OF_DOT
#define SUM_B(HOW) DOT(HOW, length, DOT_B)
#endif
#define SUMS_B(HOW, NOTE) do {                  \
    clear(&s);                                  \
    SUM_B(HOW)                                  \
    NOTE;                                       \
    FOLD(&s, LINES_B);                          \
  } while (0)

/* Before the barriers of FOLD: PoCL 3.0 loses s.odd there, in a branch. */
#define NOTE_ODD_COLUMNS                                                                  \
  if (s.odd) {                                                                            \
    for (int k = line0; k < min(K, line0 + COUNT_OF(LINES_B)); k += RUN_B)                          \
      for (int j = 0; j < N; ++j) {                                                       \
        ACC_T v[RUN_B];                                                                   \
        run_of_b(b, ldb, k, j, K, v);                                                     \
        for (int e = 0; e < RUN_B; ++e)                                                   \
          if (!IS_FINITE(v[e])) columns[j] = call + 1;                                    \
      }                                                                                   \
    verdict[FLAGGED] = call + 1;                                                          \
  }

__kernel WORK_GROUP(ITEMS, 1, 1) void verify_b(GEMM_ARGS, CHECK_ARGS, __global ACC_T *x, __global SIZE_T *size_x)
{
  SCRATCH;
  ENTRY_BEGIN;
  const int call = verdict[CALLS];
  const uint seed = SEED(call);
  columns += BATCH_ENTRY * OF_ALL(N);
  x += BATCH_ENTRY * PARTS_X * OF_ALL(K);
  size_x += BATCH_ENTRY * PARTS_X * OF_ALL(K);
  line_sums_t s;
  const int line0 = FIRST_LINE_B, length = FIRST_OF_GROUP_B < K ? N : 0; /* in a list some have fewer lines */
  if (K > 0) {
    SUMS_B(FAST, );
    if (ANY_ITEM(not_finite(&s, COUNT_OF(LINES_B)))) SUMS_B(CAREFUL, NOTE_ODD_COLUMNS);
    STORE(LINES_B, K, OF_ALL(K), x, size_x);
  }
  if (get_group_id(0) == 0 && get_group_id(1) == 0 && BATCH_ENTRY == 0 && get_local_id(0) == 0) verdict[NEXT] = call + 1;
}

/* Adds the partial sums that verify_b leaves, into the first. */
__kernel WORK_GROUP(ITEMS, 1, 1) void verify_fold(GEMM_ARGS, CHECK_ARGS, __global ACC_T *x, __global SIZE_T *size_x)
{
  const int k = get_global_id(0), lines = OF_ALL(K);
  if (k >= lines) return;
  const long first = BATCH_ENTRY * PARTS * lines + k;
  ACC_T sum = x[first];
  SIZE_T size = size_x[first];
  for (int p = 1; p < PARTS; ++p) {
    sum = sum + x[first + (long)p * lines];
    size += size_x[first + (long)p * lines];
  }
  x[first] = sum;
  size_x[first] = size;
}

/* ---- A x, of an A stored along i */

#if TRANS_A
#define WALK_A(HOW, FETCH_LINES, at) do {                                    \
    ACC_T v[VEC];                                                            \
    FETCH_LINES(fetch_a, LOAD_A, a + (long)(at) * lda, M, v);                \
    const ACC_T x_k = x[at];                                                 \
    const SIZE_T size_k = size_x[at];                                        \
    EACH for (int e = 0; e < VEC; ++e) TAKE_A(HOW, e, e, v[e], x_k, size_k); \
  } while (0)
#define SUMS_A(HOW) do {                        \
    clear(&s);                                  \
    WALK(HOW, M, length, WALK_A)                \
    odd = s.odd;                                \
    FOLD(&s, OF_WALK);                          \
  } while (0)

__kernel WORK_GROUP(ITEMS, 1, 1) void verify_a(
    GEMM_ARGS, CHECK_ARGS, __global const ACC_T *x, __global const SIZE_T *size_x, __global ACC_T *t, __global SIZE_T *size_t_)
{
  SCRATCH;
  ENTRY_BEGIN;
  const int call = verdict[NEXT] - 1, line0 = FIRST_OF_WALK, length = FIRST_OF_GROUP < M ? K : 0;
  x += BATCH_ENTRY * PARTS_X * OF_ALL(K);
  size_x += BATCH_ENTRY * PARTS_X * OF_ALL(K);
  rows += FIRST_ROW(BATCH_ENTRY, 1);
  t += FIRST_ROW(BATCH_ENTRY, PARTS);
  size_t_ += FIRST_ROW(BATCH_ENTRY, PARTS);
  line_sums_t s;
  uint odd;
  SUMS_A(FAST);
  if (ANY_ITEM(not_finite(&s, VEC))) {
    SUMS_A(CAREFUL);
    for (int r = 0; r < VEC; ++r)
      if (odd >> r & 1) rows[LINE(r, M)] = call + 1;
  }
  STORE(OF_WALK, M, OF_ALL(M), t, size_t_);
}
#endif

/* ---- beta C + bias */

__kernel WORK_GROUP(ITEMS, 1, 1) void verify_c(GEMM_ARGS, CHECK_ARGS, __global ACC_T *u, __global SIZE_T *size_u)
{
  SCRATCH;
  ENTRY_BEGIN;
  const int mark = verdict[NEXT], b_is_flagged = WITH_BOUND && verdict[FLAGGED] == mark;
  const uint seed = SEED(mark - 1);
  const int line0 = get_group_id(0) * ROWS, length = line0 < M ? N : 0;
  columns += BATCH_ENTRY * OF_ALL(N);
  u += BATCH_ENTRY * OF_ALL(M);
  size_u += BATCH_ENTRY * OF_ALL(M);
  line_sums_t s;
  clear(&s);
  for (int j = get_local_id(0); j < length; j += ITEMS) {
    if (b_is_flagged && columns[j] == mark) continue;
    EACH for (int r = 0; r < ROWS; ++r) {
      SIZE_T own;
      const ACC_T v = extras_of(LINE(r, M), j, c, c_rs, c_cs, bias, bias_stride, beta, &own);
      TAKE(FAST, r, r * LANES, SIGNED(v, j, seed), own, v);
    }
  }
  FOLD(&s, OF_DOT);
  STORE(OF_DOT, M, 0, u, size_u);
}
