/* verify: is `out` the product? Row sums of out, with random signs r, against A (B r)  (Freivalds 1977).
 *
 *   verify_b     x_k = sum_j B(k, j) r_j                  size_x_k = sum_j |B(k, j)|
 *   verify_a     t_i = sum_k A(i, k) x_k                  size_t_i = sum_k |A(i, k)| size_x_k
 *   verify_c     u_i = sum_j (beta C(i, j) + bias) r_j    size_u_i = sum_j |beta C(i, j)| + |bias|
 *   verify_out   y_i = sum_j out(i, j) r_j                wrong: |y_i - alpha t_i - u_i| > factor (|alpha| size_t_i + size_u_i)
 *
 * All but verify_out run before the product, which may overwrite C. Integers must be equal modulo 2^bits of out's type.
 *
 * A sum runs along contiguous elements (DOT: a work-group sums ROWS lines, with LANES loads in flight for each work-item), or
 * across them (WALK: a work-item sums WIDTH lines, over one of SLICES slices; PARTS work-groups leave partial sums).
 *
 * NaN and infinity count as 0 in all sums. A row of A or a column of B that has one is flagged: all of that row or
 * column of out must be NaN or infinite, and of the others nothing may be, unless the sums may overflow. A column that
 * is flagged is taken out of t_i, by its dot products.
 *
 * The group that finds a wrong row computes that row's elements again and so finds the wrong columns, unless there is a C.
 *
 * alarm[0] becomes not 0 with the first wrong row; the host looks at it. verdict, which stays between calls:  calls, calls + 1, number of wrong rows, [and as a number that is 0 or grows]
 *   of the first one: z, row + 1, call, bits of the error and of the limit;  of all: N - first column, last column + 1,
 *   M - first row, last row + 1, stack - first z, last z + 1
 * flags: for each row of A, then for each column of B, the last call + 1 with a NaN or an infinity there; stacked.
 *
 * Macros: those of gemm.h; ITEMS a power of two, ROWS (at most 32), LANES, WIDTH, SLICES, which
 * divides ITEMS, PARTS 1 or more; WITH_BOUND 0 for integers; LEAST_A LEAST_B: smaller elements count as wholly uncertain, as a
 * device may take them for 0.
 */
#include "include/gemm.h"

#if !defined(ITEMS) || !defined(LANES) || !defined(ROWS) || !defined(WIDTH) || !defined(SLICES) || \
    !defined(PARTS) || !defined(WITH_BOUND) || !defined(LEAST_A) || !defined(LEAST_B)
#error "verify.cl needs ITEMS LANES ROWS WIDTH SLICES PARTS WITH_BOUND LEAST_A LEAST_B"
#endif
#define size_uint32 float
#define size_uint64 float
#define size_float32 float
#define size_float64 double
#define size_complex64 float
#define size_complex128 double
typedef CAT(size_, ACC_TYPE) SIZE_T;

#if !WITH_BOUND
#define IS_FINITE(v) 1
#define SIZE(v) 0
#elif PLANES == 2
#define IS_FINITE(v) (isfinite((v).x) && isfinite((v).y))
#define SIZE(v) (fabs((v).x) + fabs((v).y))
#else
#define IS_FINITE(v) isfinite(v)
#define SIZE(v) fabs(v)
#endif
#define ADMITTED(v) (IS_FINITE(v) ? (v) : ACC_ZERO)
#define SIGNED(v, j, seed) (is_minus(j, seed) ? -(v) : (v))

enum { CALLS, NEXT, WRONG, FIRST_Z, FIRST_ROW, FIRST_CALL, ERROR, LIMIT = ERROR + 2, LOW_COLUMN = LIMIT + 2, HIGH_COLUMN,
       LOW_ROW, HIGH_ROW, LOW_Z, HIGH_Z, FLAGGED };

/* Whether r_j is -1. A multiplicative hash of j and the number of the call. */
INLINE int is_minus(const int j, const uint seed)
{
  uint h = ((uint)j ^ seed) * 0x9e3779b1u;
  h = (h ^ h >> 15) * 0x85ebca6bu;
  return (int)(h >> 31);
}
#define SEED(call) ((uint)(call) * 0xc2b2ae35u)

/* |v|, or 1 / factor times that where a device may take v for 0. */
INLINE SIZE_T size_of(const ACC_T v, const SIZE_T least, const SIZE_T whole)
{
  const SIZE_T own = (SIZE_T)SIZE(v);
  return own < least ? own * whole : own;
}

#if ITEMS > 1
/* Adds `sum` and `size` of work-items whose numbers differ by a multiple of `stride`; each of these gets the sums. */
INLINE void add_items(ACC_T *sum, SIZE_T *size, __local ACC_T *sums, __local SIZE_T *sizes, const int stride)
{
  const int item = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  sums[item] = *sum;
  sizes[item] = *size;
  for (int half = ITEMS / 2; half >= stride; half /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half) {
      sums[item] += sums[item + half];
      sizes[item] += sizes[item + half];
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  *sum = sums[item % stride];
  *size = sizes[item % stride];
}
#define SCRATCH __local ACC_T sums[ITEMS]; __local SIZE_T sizes[ITEMS]
#define ADD_ITEMS(sum, size, stride) add_items(&(sum), &(size), sums, sizes, stride)
#else
#define SCRATCH
#define ADD_ITEMS(sum, size, stride)
#endif

/* DOT: sums of ROWS lines from line0 on, over `length` elements. TAKE(r, l, line, at) adds element `at`. */
#define DOT(lines, length, TAKE)                                              \
  int at0 = 0;                                                                \
  for (; at0 + ITEMS * LANES <= (length); at0 += ITEMS * LANES)               \
    UNROLL for (int l = 0; l < LANES; ++l) {                                  \
      const int at = at0 + l * ITEMS + (int)get_local_id(0);                  \
      UNROLL for (int r = 0; r < ROWS; ++r) TAKE(r, l, min(line0 + r, (lines) - 1), at);  \
    }                                                                         \
  for (int at = at0 + (int)get_local_id(0); at < (length); at += ITEMS)       \
    UNROLL for (int r = 0; r < ROWS; ++r) TAKE(r, 0, min(line0 + r, (lines) - 1), at)

/* WALK: sums of LANES lines, each of this work-item, over its slice of this part. */
#define ACROSS (ITEMS / SLICES)
#define WALK(lines, length, TAKE)                                                               \
  for (int at = part * SLICES + (int)get_local_id(0) / ACROSS; at < (length); at += PARTS * SLICES)   \
    UNROLL for (int l = 0; l < WIDTH; ++l) TAKE(0, l, min(line0 + l * ACROSS, (lines) - 1), at)

#define SUMS(lines, lanes)                                                                       \
  ACC_T sum[lines][lanes];                                                                       \
  SIZE_T size[lines][lanes];                                                                     \
  uint odd = 0; /* a bit for each line that has a NaN or an infinity */                          \
  UNROLL for (int r = 0; r < lines; ++r) UNROLL for (int l = 0; l < lanes; ++l) {                \
    sum[r][l] = ACC_ZERO;                                                                        \
    size[r][l] = 0;                                                                              \
  }
#define FOLD(r)                                              \
  UNROLL for (int l = 1; l < LANES; ++l) {                   \
    sum[r][0] += sum[r][l];                                  \
    size[r][0] += size[r][l];                                \
  }                                                          \
  ADD_ITEMS(sum[r][0], size[r][0], 1)

#define CHECK_ARGS __global int *verdict, __global int *alarm, __global int *flags, const SIZE_T whole

/* Stores the line sums of a DOT or a WALK, (lines) for each part. */
#define STORE_DOT(lines, target, target_size)                                   \
  for (int r = 0; r < ROWS; ++r) {                                              \
    FOLD(r);                                                                    \
    if (get_local_id(0) == 0 && line0 + r < (lines)) {                          \
      target[BATCH_ENTRY * (lines) + line0 + r] = sum[r][0];                    \
      target_size[BATCH_ENTRY * (lines) + line0 + r] = size[r][0];              \
    }                                                                           \
  }
#define STORE_WALK(lines, target, target_size)                                          \
  UNROLL for (int l = 0; l < WIDTH; ++l) {                                              \
    ADD_ITEMS(sum[0][l], size[0][l], ACROSS);                                           \
    const int line = line0 + l * ACROSS;                                                \
    if (get_local_id(0) < ACROSS && line < (lines)) {                                   \
      target[(BATCH_ENTRY * PARTS + part) * (lines) + line] = sum[0][l];                \
      target_size[(BATCH_ENTRY * PARTS + part) * (lines) + line] = size[0][l];          \
    }                                                                                   \
  }
#define FIRST_LINE_OF_WALK ((int)get_group_id(0) * ACROSS * WIDTH + (int)get_local_id(0) % ACROSS)

#define TAKE_B(r, l, k, j) do {                                           \
    const ACC_T v = LOAD_B(b, B_INDEX(k, j, ldb)), v0 = ADMITTED(v);      \
    odd |= (uint)!IS_FINITE(v);                                           \
    sum[r][l] += SIGNED(v0, j, seed);                                     \
    size[r][l] += size_of(v0, LEAST_B, whole);                            \
  } while (0)
#define FLAG_B(r, l, k, j) do {                                           \
    if (!IS_FINITE(LOAD_B(b, B_INDEX(k, j, ldb)))) columns[j] = call + 1; \
  } while (0)

__kernel WORK_GROUP(ITEMS, 1, 1) void verify_b(
    GEMM_ARGS, CHECK_ARGS, __global ACC_T *x, __global SIZE_T *size_x)
{
  SCRATCH;
  GEMM_BEGIN;
  const int call = verdict[CALLS];
  const uint seed = SEED(call);
  __global int *columns = flags + (long)M * get_global_size(2) + BATCH_ENTRY * N;
#if TRANS_B
  SUMS(1, WIDTH);
  const int part = get_group_id(1), line0 = FIRST_LINE_OF_WALK;
  WALK(K, N, TAKE_B);
  if (odd) { WALK(K, N, FLAG_B); }
  STORE_WALK(K, x, size_x);
#else
  SUMS(ROWS, LANES);
  const int line0 = get_group_id(0) * ROWS;
  DOT(K, N, TAKE_B);
  if (odd) { DOT(K, N, FLAG_B); }
  STORE_DOT(K, x, size_x);
#endif
  if (odd) verdict[FLAGGED] = call + 1;
}

#if TRANS_B && PARTS > 1
#define PARTS_X PARTS
#else
#define PARTS_X 1
#endif
INLINE ACC_T sum_of_parts(__global const ACC_T *x, const int parts, const int length, const int at)
{
  ACC_T sum = x[at];
  for (int p = 1; p < parts; ++p) sum += x[(long)p * length + at];
  return sum;
}
INLINE SIZE_T size_of_parts(__global const SIZE_T *x, const int parts, const int length, const int at)
{
  SIZE_T sum = x[at];
  for (int p = 1; p < parts; ++p) sum += x[(long)p * length + at];
  return sum;
}

#define TAKE_A(r, l, i, k) do {                                                                   \
    const ACC_T v = LOAD_A(a, A_INDEX(i, k, lda)), v0 = ADMITTED(v);                              \
    odd |= (uint)!IS_FINITE(v) << (r);                                                            \
    sum[r][l] = MAC(sum[r][l], v0, sum_of_parts(x, PARTS_X, K, k));                               \
    size[r][l] += size_of(v0, LEAST_A, whole) * size_of_parts(size_x, PARTS_X, K, k);             \
  } while (0)

#define FLAG_A(r, l, i, k) do {                                           \
    if (!IS_FINITE(LOAD_A(a, A_INDEX(i, k, lda)))) rows[i] = call + 1;    \
  } while (0)

__kernel WORK_GROUP(ITEMS, 1, 1) void verify_a(
    GEMM_ARGS, CHECK_ARGS, __global const ACC_T *x, __global const SIZE_T *size_x,
    __global ACC_T *t, __global SIZE_T *size_t_)
{
  SCRATCH;
  GEMM_BEGIN;
  const int call = verdict[CALLS];
  __global int *rows = flags + BATCH_ENTRY * M;
  x += BATCH_ENTRY * PARTS_X * K;
  size_x += BATCH_ENTRY * PARTS_X * K;
#if TRANS_A
  SUMS(1, WIDTH);
  const int part = get_group_id(1), line0 = FIRST_LINE_OF_WALK;
  WALK(M, K, TAKE_A);
  if (odd) { WALK(M, K, FLAG_A); }
  STORE_WALK(M, t, size_t_);
#else
  SUMS(ROWS, LANES);
  const int line0 = get_group_id(0) * ROWS;
  DOT(M, K, TAKE_A);
  for (int r = 0; r < ROWS; ++r)
    if (odd >> r & 1) rows[min(line0 + r, M - 1)] = call + 1;
  STORE_DOT(M, t, size_t_);
#endif
  if (odd) verdict[FLAGGED] = call + 1;
  if (get_group_id(0) == 0 && get_local_id(0) == 0) verdict[NEXT] = call + 1;
}

#define TAKE_C(r, l, i, j) do {                                                             \
    ACC_T v = ACC_ZERO;                                                                     \
    SIZE_T own = 0;                                                                         \
    if (HAS_C) {                                                                            \
      v = SCALE(beta, LOAD_C(c, (long)(i) * c_rs + (long)(j) * c_cs));                      \
      own += SIZE(v);                                                                       \
    }                                                                                       \
    if (BIAS) {                                                                             \
      const ACC_T shift = LOAD_BIAS(bias, (long)(BIAS == 1 ? (j) : (i)) * bias_stride);     \
      v = ADD(v, shift);                                                                    \
      own += SIZE(shift);                                                                   \
    }                                                                                       \
    sum[r][l] += SIGNED(v, j, seed);                                                        \
    size[r][l] += own;                                                                      \
  } while (0)

__kernel WORK_GROUP(ITEMS, 1, 1) void verify_c(
    GEMM_ARGS, CHECK_ARGS, __global ACC_T *u, __global SIZE_T *size_u)
{
  SCRATCH;
  GEMM_BEGIN;
  const uint seed = SEED(verdict[CALLS]);
  const int line0 = get_group_id(0) * ROWS;
  SUMS(ROWS, LANES);
  DOT(M, N, TAKE_C);
  STORE_DOT(M, u, size_u);
}

/* alpha A(i, :) B(:, j) + bias, and its size. */
INLINE ACC_T element(
    const int i, const int j, const int K, __global const A_T *a, const long lda, __global const B_T *b, const long ldb,
    const SIZE_T whole, SIZE_T *size)
{
  ACC_T sum = ACC_ZERO;
  SIZE_T all = 0;
  for (int k = 0; k < K; ++k) {
    const ACC_T v = LOAD_A(a, A_INDEX(i, k, lda)), w = LOAD_B(b, B_INDEX(k, j, ldb));
    sum = MAC(sum, ADMITTED(v), ADMITTED(w));
    all += size_of(ADMITTED(v), LEAST_A, whole) * size_of(ADMITTED(w), LEAST_B, whole);
  }
  *size = all;
  return sum;
}

#if WITH_BOUND
#define DIFFERS(x, y, limit) ((SIZE_T)SIZE((x) - (y)) > (limit))
#else
#define DIFFERS(x, y, limit) ((((x) - (y)) & OUT_MASK) != 0)
#define OUT_MASK (~(ACC_T)0 >> 8 * (sizeof(ACC_T) - sizeof(OUT_T)))
#endif
#define TAKE_OUT(r, l, i, j) do {                                          \
    const ACC_T v = LOAD(OUT_TYPE, out, (long)(i) * ldo + (j));            \
    odd |= (uint)!IS_FINITE(v) << (r);                                     \
    sum[r][l] += SIGNED(ADMITTED(v), j, seed);                             \
  } while (0)

INLINE void raise_to(__global int *word, const int value) { atomic_max((volatile __global int *)word, value); }

/* The result of verify_out for ROWS rows. `largest` is the greatest number of out's type. */
__kernel WORK_GROUP(ITEMS, 1, 1) void verify_out(
    GEMM_ARGS, CHECK_ARGS, __global const ACC_T *t, __global const SIZE_T *size_t_,
    __global const ACC_T *u, __global const SIZE_T *size_u, const SIZE_T factor, const SIZE_T rest, const SIZE_T largest)
{
  SCRATCH;
  __local int ticket;
  GEMM_BEGIN;
  const int call = verdict[NEXT] - 1, item = get_local_id(0);
  const uint seed = SEED(call);
  const int line0 = get_group_id(0) * ROWS, parts = TRANS_A ? PARTS : 1;
  __global const int *rows = flags + BATCH_ENTRY * M;
  __global const int *columns = flags + (long)M * get_global_size(2) + BATCH_ENTRY * N;
  const int flagged = WITH_BOUND && K && verdict[FLAGGED] == call + 1;
  SUMS(ROWS, LANES);
  DOT(M, N, TAKE_OUT);
  for (int r = 0; r < ROWS; ++r) {
    FOLD(r);
    const int i = line0 + r;
    if (i >= M) break;
    SIZE_T size_r = SIZE(alpha) * size_of_parts(size_t_ + BATCH_ENTRY * parts * M, parts, M, i);
    ACC_T expected = SCALE(alpha, sum_of_parts(t + BATCH_ENTRY * parts * M, parts, M, i));
#if HAS_C || BIAS
    expected = ADD(expected, u[BATCH_ENTRY * M + i]);
    size_r += size_u[BATCH_ENTRY * M + i];
#endif
    const SIZE_T limit = factor * size_r + rest;
    int is_wrong = 0;
#if WITH_BOUND
    ACC_T has_odd = ACC_ZERO;
    SIZE_T is_odd = (odd >> r & 1);
    ADD_ITEMS(has_odd, is_odd, 1);
    if (!isfinite(limit)) continue; /* sums may overflow: nothing can be said */
    if (flagged || is_odd > 0) {
      const int all = flagged && rows[i] == call + 1;
      ACC_T without = ACC_ZERO;
      SIZE_T missing = 0; /* elements that should be finite, or should not */
      for (int j = item; j < N; j += ITEMS) {
        const int is_flagged = all || (flagged && columns[j] == call + 1);
        missing += is_flagged == IS_FINITE(LOAD(OUT_TYPE, out, (long)i * ldo + j));
        if (is_flagged && !all) {
          SIZE_T unused;
          without += SIGNED(element(i, j, K, a, lda, b, ldb, whole, &unused), j, seed);
        }
      }
      ADD_ITEMS(without, missing, 1);
      if (missing > 0 && size_r < largest) is_wrong = 1;
      if (all || missing > 0 || HAS_C || BIAS) { if (!is_wrong) continue; }
      expected -= SCALE(alpha, without);
    }
#endif
    is_wrong |= DIFFERS(sum[r][0], expected, limit);
    if (!is_wrong) continue;
#if ITEMS > 1
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0)
#endif
      ticket = atomic_inc((volatile __global int *)verdict + WRONG);
#if ITEMS > 1
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (item == 0) {
      raise_to(verdict + LOW_ROW, M - i);
      raise_to(verdict + HIGH_ROW, i + 1);
      raise_to(verdict + LOW_Z, (int)get_global_size(2) - (int)BATCH_ENTRY);
      raise_to(verdict + HIGH_Z, (int)BATCH_ENTRY + 1);
      *alarm = 1;
    }
    if (item == 0 && ticket == 0) {
      verdict[FIRST_Z] = (int)BATCH_ENTRY;
      verdict[FIRST_ROW] = i + 1;
      verdict[FIRST_CALL] = call;
      *(__global SIZE_T *)(verdict + ERROR) = (SIZE_T)SIZE(sum[r][0] - expected);
      *(__global SIZE_T *)(verdict + LIMIT) = limit;
    }
    if (HAS_C || ticket >= 64) { /* which columns is not looked for */
      if (item == 0) raise_to(verdict + LOW_COLUMN, N), raise_to(verdict + HIGH_COLUMN, N);
      continue;
    }
    for (int j = item; j < N; j += ITEMS) {
      SIZE_T own;
      ACC_T value = SCALE(alpha, element(i, j, K, a, lda, b, ldb, whole, &own));
      own *= SIZE(alpha);
#if BIAS
      const ACC_T shift = LOAD_BIAS(bias, (long)(BIAS == 1 ? j : i) * bias_stride);
      value = ADD(value, shift);
      own += SIZE(shift);
#endif
      const ACC_T is = LOAD(OUT_TYPE, out, (long)i * ldo + j);
      const int is_flagged = flagged && (rows[i] == call + 1 || columns[j] == call + 1);
      if (IS_FINITE(is) == is_flagged || (!is_flagged && DIFFERS(is, value, factor * own + rest))) {
        raise_to(verdict + LOW_COLUMN, N - j);
        raise_to(verdict + HIGH_COLUMN, j + 1);
      }
    }
  }
  if (get_group_id(0) == 0 && BATCH_ENTRY == 0 && item == 0) verdict[CALLS] = call + 1;
}
