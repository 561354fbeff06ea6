/* verify: is `out` the product? Row sums of out, with random signs r, against A (B r)  (Freivalds 1977).
 *
 *   verify_c     u_i = sum_j (beta C(i, j) + bias) r_j    size_u_i = sum_j |beta C(i, j)| + |bias|     before the product
 *   verify_b     x_k = sum_j B(k, j) r_j                  size_x_k = sum_j |B(k, j)|
 *   verify_a     t_i = sum_k A(i, k) x_k                  size_t_i = sum_k |A(i, k)| size_x_k          where A is stored along i
 *   verify_out   y_i = sum_j out(i, j) r_j, and t_i elsewhere
 *                wrong: |y_i - alpha t_i - u_i| > factor (|alpha| size_t_i + size_u_i) + rest
 *
 * Integers must be equal modulo 2^bits of out's type. docs/verification.md says what is noticed and what is not.
 *
 * Sums run along contiguous elements (DOT: a work-group sums ROWS lines, a work-item VEC neighbours at a time), or across
 * them (WALK: a work-item sums VEC lines over one of SLICES slices; PARTS work-groups leave partial sums, which verify_fold
 * adds where many read them).
 *
 * Sums that are not finite are added up anew (CAREFUL). Then NaN and infinity count as 0. In a row of A and a column of B that has one, all of out must be NaN or infinite,
 * and nothing else may be, unless sums may overflow. `columns` and `rows` hold the last call + 1 in which they had one. Such
 * a column is taken out of t_i by its dot product. Then, with C or bias, only this is compared.
 *
 * The group that finds a wrong row computes its elements again and so finds the wrong columns, if there is no C.
 *
 * alarm[0] becomes 1 with the first wrong row; the host looks at it. `verdict` stays between calls: see the enum.
 *
 * Macros: those of gemm.h; ITEMS a power of two; ROWS; VEC; LANES, sums of a line in a work-item, divides VEC; SLICES divides
 * ITEMS; PARTS; WIDE_A WIDE_B WIDE_OUT, WIDE_SUMS for x, 1: lines begin at multiples of 16 bytes, and VEC elements are multiples of that;
 * WITH_BOUND 0 for integers; LEAST_A LEAST_B, 0 or a number: a device may take smaller elements for 0, so they count as wholly uncertain.
 */
#include "include/gemm.h"

#if !defined(ITEMS) || !defined(ROWS) || !defined(VEC) || !defined(LANES) || !defined(SLICES) || !defined(PARTS) || \
    !defined(WIDE_A) || !defined(WIDE_B) || !defined(WIDE_OUT) || !defined(WIDE_SUMS) || !defined(WITH_BOUND) || !defined(LEAST_A) || !defined(LEAST_B)
#error "verify.cl needs ITEMS ROWS VEC LANES SLICES PARTS WIDE_A WIDE_B WIDE_OUT WIDE_SUMS WITH_BOUND LEAST_A LEAST_B"
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
#define IS_NAN(v) 0
#define SIZE(v) 0
#elif PLANES == 2
#define IS_FINITE(v) (isfinite((v).x) && isfinite((v).y))
#define IS_NAN(v) 0 /* a complex product may be NaN where it overflows */
#define SIZE(v) (fabs((v).x) + fabs((v).y))
#else
#define IS_FINITE(v) isfinite(v)
#define IS_NAN(v) isnan(v)
#define SIZE(v) fabs(v)
#endif
#if WITH_BOUND
#define DIFFERS(x, y, limit) ((SIZE_T)SIZE((x) - (y)) > (limit))
#else
#define OUT_MASK (~(ACC_T)0 >> 8 * (sizeof(ACC_T) - sizeof(OUT_T)))
#define DIFFERS(x, y, limit) ((((x) - (y)) & OUT_MASK) != 0)
#endif
#define ADMITTED(v) (IS_FINITE(v) ? (v) : ACC_ZERO)

/* Words of `verdict`: the number of calls; of the call that runs, + 1; of wrong rows. Of the first one its product, row,
 * call, and the bits of its error and limit. Of all, as numbers that only grow, the first and last column, row, product.
 * The last call + 1 in which B had a NaN or an infinity. */
enum { CALLS, NEXT, WRONG, FIRST_Z, FIRST_ROW, FIRST_CALL, ERROR, LIMIT = 8, LOW_COLUMN = 10, HIGH_COLUMN, LOW_ROW, HIGH_ROW,
       LOW_Z, HIGH_Z, FLAGGED };
#define CHECK_ARGS __global int *verdict, __global int *alarm, __global int *rows, __global int *columns, const SIZE_T whole

/* The signs of j on: bit e is for j + e. A multiplicative hash of the number of the call and of j / 32. */
INLINE uint signs_from(const int j, const uint seed)
{
  uint h = ((uint)(j >> 5) ^ seed) * 0x9e3779b1u;
  h = (h ^ h >> 15) * 0x85ebca6bu;
  return (h ^ h >> 13) >> (j & 31);
}
#define SEED(call) ((uint)(call) * 0xc2b2ae35u)
/* v, or -v where bit e of `signs` is set. */
#define flipped_uint32(v, bit) (((v) ^ -(bit)) + (bit))
#define flipped_uint64(v, bit) (((v) ^ -(ulong)(bit)) + (bit))
#define flipped_float32(v, bit) as_float(as_uint(v) ^ (bit) << 31)
#define flipped_float64(v, bit) as_double(as_ulong(v) ^ (ulong)(bit) << 63)
#define flipped_complex64(v, bit) as_float2(as_uint2(v) ^ (uint2)((bit) << 31))
#define flipped_complex128(v, bit) as_double2(as_ulong2(v) ^ (ulong2)((ulong)(bit) << 63))
#define FLIPPED(v, signs, e) CAT(flipped_, ACC_TYPE)(v, (signs) >> (e) & 1)
#define SIGNED(v, j, seed) FLIPPED(v, signs_from(j, seed), 0)

/* |v|, or `whole` = 1 / factor times that where a device may take v for 0. */
INLINE SIZE_T size_of(const ACC_T v, const SIZE_T least, const SIZE_T whole)
{
  const SIZE_T own = (SIZE_T)SIZE(v);
  return least > 0 && own < least ? own * whole : own;
}

/* VEC elements from p on, as accumulators. */
#define DEFINE_FETCH(name, T, LOAD_ONE, WIDE) DEFINE_FETCH_AS(ACC_T, name, T, LOAD_ONE, WIDE)
#define DEFINE_FETCH_AS(RESULT, name, T, LOAD_ONE, WIDE)                                                         \
  INLINE void name(__global const T *p, RESULT *v)                                                    \
  {                                                                                                   \
    if (WIDE) {                                                                                       \
      uint4 words[(VEC * sizeof(T) + 15) / 16];                                                       \
      UNROLL for (int w = 0; w < (int)(VEC * sizeof(T) / 16); ++w) words[w] = ((__global const uint4 *)p)[w]; \
      UNROLL for (int e = 0; e < VEC; ++e) v[e] = LOAD_ONE((const T *)words, e);                      \
    } else {                                                                                          \
      UNROLL for (int e = 0; e < VEC; ++e) v[e] = LOAD_ONE(p, e);                                     \
    }                                                                                                 \
  }
#define LOAD_OUT(p, i) LOAD(OUT_TYPE, p, i)
DEFINE_FETCH(fetch_a, A_T, LOAD_A, WIDE_A)
DEFINE_FETCH(fetch_b, B_T, LOAD_B, WIDE_B)
DEFINE_FETCH(fetch_out, OUT_T, LOAD_OUT, WIDE_OUT)
#define AS_IT_IS(p, i) (p)[i]
DEFINE_FETCH(fetch_x, ACC_T, AS_IT_IS, WIDE_SUMS)
DEFINE_FETCH_AS(SIZE_T, fetch_size, SIZE_T, AS_IT_IS, WIDE_SUMS)

/* The sums of `lines` lines in a work-item. If they are added with care, `odd` has a bit for each that has a NaN or an
 * infinity. */
typedef struct {
  ACC_T sum[ROWS > VEC ? ROWS : VEC][LANES];
  SIZE_T size[ROWS > VEC ? ROWS : VEC][LANES];
  uint odd;
} sums_t;
INLINE void clear(sums_t *s, const int lines)
{
  s->odd = 0;
  UNROLL for (int r = 0; r < lines; ++r)
    UNROLL for (int l = 0; l < LANES; ++l) {
      s->sum[r][l] = ACC_ZERO;
      s->size[r][l] = 0;
    }
}
#define ADMIT_FAST(v) (v)
#define ADMIT_CAREFUL(v) ADMITTED(v)
#define ODD_FAST(v) 0
#define ODD_CAREFUL(v) ((uint)!IS_FINITE(v))
#define TAKE(HOW, s, r, l, term, its_size, v) do {              \
    (s).sum[r][l] = (s).sum[r][l] + (term);                     \
    (s).size[r][l] += (its_size);                               \
    (s).odd |= ODD_##HOW(v) << (r);                             \
  } while (0)

/* Adds the lanes of each line; then those of the work-items whose numbers are equal modulo `stride`, which all get the sums. */
#define FOLDED 4 /* lines at a time */
#if ITEMS > 1
#define SCRATCH __local ACC_T sums[FOLDED * ITEMS]; __local SIZE_T sizes[FOLDED * ITEMS]; __local volatile uint found
#define FOLD(s, lines, stride) fold(s, lines, stride, sums, sizes)
#define FOLD_ARGS , __local ACC_T *sums, __local SIZE_T *sizes
#else
#define SCRATCH
#define FOLD(s, lines, stride) fold(s, lines, stride)
#define FOLD_ARGS
#endif
INLINE void fold(sums_t *s, const int lines, const int stride FOLD_ARGS)
{
  UNROLL for (int r = 0; r < lines; ++r)
    UNROLL for (int l = 1; l < LANES; ++l) {
      s->sum[r][0] = s->sum[r][0] + s->sum[r][l];
      s->size[r][0] += s->size[r][l];
    }
#if ITEMS > 1
  const int item = get_local_id(0);
  UNROLL for (int r0 = 0; r0 < lines; r0 += FOLDED) {
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < FOLDED; ++r)
      if (r0 + r < lines) {
        sums[r * ITEMS + item] = s->sum[r0 + r][0];
        sizes[r * ITEMS + item] = s->size[r0 + r][0];
      }
    for (int step = ITEMS / 2; step >= stride; step /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item < step)
        UNROLL for (int r = 0; r < FOLDED; ++r) {
          sums[r * ITEMS + item] = sums[r * ITEMS + item] + sums[r * ITEMS + item + step];
          sizes[r * ITEMS + item] += sizes[r * ITEMS + item + step];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < FOLDED; ++r)
      if (r0 + r < lines) {
        s->sum[r0 + r][0] = sums[r * ITEMS + item % stride];
        s->size[r0 + r][0] = sizes[r * ITEMS + item % stride];
      }
  }
#endif
}

/* Bits for the lines whose sums are not finite. */
INLINE uint not_finite(const sums_t *s, const int lines)
{
  uint found = 0;
#if WITH_BOUND
  UNROLL for (int r = 0; r < lines; ++r)
    found |= (uint)!(isfinite(s->size[r][0]) && IS_FINITE(s->sum[r][0])) << r;
#endif
  return found;
}

/* The bits that any work-item of the group has. */
#if ITEMS > 1 && WITH_BOUND
INLINE uint any_item(const uint bits, __local volatile uint *found)
{
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0) *found = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (bits) atomic_or(found, bits);
  barrier(CLK_LOCAL_MEM_FENCE);
  return *found;
}
#define ANY_ITEM(bits) any_item(bits, &found)
#else
#define ANY_ITEM(bits) (bits)
#endif

/* DOT: STEP for VEC neighbours from `at` on of ROWS lines, or REST for single ones. HOW: FAST or CAREFUL. */
#define DOT(HOW, length, STEP, REST)                                                                       \
  for (int at_ = (int)get_local_id(0) * VEC; at_ < (length); at_ += ITEMS * VEC) {                         \
    if (at_ + VEC <= (length)) STEP(HOW, at_);                                                             \
    else                                                                                                   \
      for (int one_ = at_; one_ < (length); ++one_) REST(HOW, one_);                                       \
  }
#define LINE(r, lines) ((long)min(line0 + (r), (lines) - 1))

/* WALK: STEP for each element of this work-item's slice and part of VEC lines from line0 on; REST where these are fewer. */
#define ACROSS (ITEMS / SLICES)
#define WALK(HOW, lines, length, STEP, REST)                                                                 \
  for (int at_ = (int)get_group_id(1) * SLICES + (int)get_local_id(0) / ACROSS; at_ < (length); at_ += PARTS * SLICES) { \
    if (line0 + VEC <= (lines)) STEP(HOW, at_);                                                            \
    else REST(HOW, at_);                                                                                   \
  }
#define FIRST_OF_WALK (((int)get_group_id(0) * ACROSS + (int)get_local_id(0) % ACROSS) * VEC)

#define STORE_DOT(s, lines, target, target_size)                                \
  UNROLL for (int r = 0; r < ROWS; ++r)                                         \
    if (get_local_id(0) == 0 && line0 + r < (lines)) {                          \
      target[BATCH_ENTRY * (lines) + line0 + r] = (s).sum[r][0];                \
      target_size[BATCH_ENTRY * (lines) + line0 + r] = (s).size[r][0];          \
    }
#define STORE_WALK(s, lines, target, target_size)                                                       \
  UNROLL for (int r = 0; r < VEC; ++r)                                                                  \
    if (get_local_id(0) < ACROSS && line0 + r < (lines)) {                                              \
      target[(BATCH_ENTRY * PARTS + get_group_id(1)) * (lines) + line0 + r] = (s).sum[r][0];            \
      target_size[(BATCH_ENTRY * PARTS + get_group_id(1)) * (lines) + line0 + r] = (s).size[r][0];      \
    }

/* ---- B r */

#define TAKE_B(HOW, r, l, v, signs, e)                                                                 \
  TAKE(HOW, s, r, l, FLIPPED(ADMIT_##HOW(v), signs, e), size_of(ADMIT_##HOW(v), LEAST_B, whole), v)
#define DOT_B(HOW, at) do {                                                                 \
    const uint signs = signs_from(at, seed);                                                \
    UNROLL for (int r = 0; r < ROWS; ++r) {                                                 \
      ACC_T v[VEC];                                                                         \
      fetch_b(b + LINE(r, K) * ldb + (at), v);                                              \
      UNROLL for (int e = 0; e < VEC; ++e) TAKE_B(HOW, r, e % LANES, v[e], signs, e);       \
    }                                                                                       \
  } while (0)
#define REST_B(HOW, at) do {                                                                \
    const uint signs = signs_from(at, seed);                                                \
    UNROLL for (int r = 0; r < ROWS; ++r) {                                                 \
      const ACC_T v = LOAD_B(b, LINE(r, K) * ldb + (at));                                   \
      TAKE_B(HOW, r, 0, v, signs, 0);                                                       \
    }                                                                                       \
  } while (0)
#define WALK_B(HOW, at) do {                                                                \
    const uint signs = signs_from(at, seed);                                                \
    ACC_T v[VEC];                                                                           \
    fetch_b(b + (long)(at) * ldb + line0, v);                                               \
    UNROLL for (int e = 0; e < VEC; ++e) TAKE_B(HOW, e, 0, v[e], signs, 0);                 \
  } while (0)
#define REST_WALK_B(HOW, at) do {                                                           \
    const uint signs = signs_from(at, seed);                                                \
    for (int e = 0; e < VEC; ++e) {                                                         \
      const ACC_T v = LOAD_B(b, (long)(at) * ldb + LINE(e, K));                             \
      TAKE_B(HOW, e, 0, v, signs, 0);                                                       \
    }                                                                                       \
  } while (0)
#if TRANS_B
#define LINES_B VEC
#define SUMS_B(HOW, NOTE) do {                  \
    clear(&s, VEC);                             \
    WALK(HOW, K, N, WALK_B, REST_WALK_B)        \
    NOTE;                                       \
    FOLD(&s, VEC, ACROSS);                      \
  } while (0)
#else
#define LINES_B ROWS
#define SUMS_B(HOW, NOTE) do {                  \
    clear(&s, ROWS);                            \
    DOT(HOW, N, DOT_B, REST_B)                  \
    NOTE;                                       \
    FOLD(&s, ROWS, 1);                          \
  } while (0)
#endif

/* Before the barriers of FOLD: PoCL 3.0 loses s.odd there, in a branch. */
#define NOTE_ODD_COLUMNS                                                                  \
  if (s.odd) {                                                                            \
    for (int k = line0; k < min(K, line0 + LINES_B); ++k)                                 \
      for (int j = 0; j < N; ++j)                                                         \
        if (!IS_FINITE(LOAD_B(b, B_INDEX(k, j, ldb)))) columns[j] = call + 1;             \
    verdict[FLAGGED] = call + 1;                                                          \
  }

__kernel WORK_GROUP(ITEMS, 1, 1) void verify_b(GEMM_ARGS, CHECK_ARGS, __global ACC_T *x, __global SIZE_T *size_x)
{
  SCRATCH;
  GEMM_BEGIN;
  const int call = verdict[CALLS];
  const uint seed = SEED(call);
  columns += BATCH_ENTRY * N;
  sums_t s;
  const int line0 = TRANS_B ? FIRST_OF_WALK : (int)get_group_id(0) * ROWS;
  if (K > 0) {
    SUMS_B(FAST, );
    if (ANY_ITEM(not_finite(&s, LINES_B))) SUMS_B(CAREFUL, NOTE_ODD_COLUMNS);
#if TRANS_B
    STORE_WALK(s, K, x, size_x);
#else
    STORE_DOT(s, K, x, size_x);
#endif
  }
  if (get_group_id(0) == 0 && get_group_id(1) == 0 && BATCH_ENTRY == 0 && get_local_id(0) == 0) verdict[NEXT] = call + 1;
}

/* Adds the partial sums that verify_b leaves, into the first. */
__kernel WORK_GROUP(ITEMS, 1, 1) void verify_fold(GEMM_ARGS, CHECK_ARGS, __global ACC_T *x, __global SIZE_T *size_x)
{
  const int k = get_global_id(0);
  if (k >= K) return;
  const long first = BATCH_ENTRY * PARTS * K + k;
  ACC_T sum = x[first];
  SIZE_T size = size_x[first];
  for (int p = 1; p < PARTS; ++p) {
    sum = sum + x[first + (long)p * K];
    size += size_x[first + (long)p * K];
  }
  x[first] = sum;
  size_x[first] = size;
}
#define PARTS_X (TRANS_B ? PARTS : 1) /* how far the sums of the products of a stack are apart, in K */

/* ---- A x */

#define TAKE_A(HOW, r, l, v, x_k, size_k)                                                                \
  TAKE(HOW, s, r, l, MUL(ADMIT_##HOW(v), x_k), size_of(ADMIT_##HOW(v), LEAST_A, whole) * (size_k), v)
#define DOT_A(HOW, at) do {                                                                 \
    ACC_T x_k[VEC];                                                                         \
    SIZE_T size_k[VEC];                                                                     \
    fetch_x(x + (at), x_k);                                                                 \
    fetch_size(size_x + (at), size_k);                                                      \
    UNROLL for (int r = 0; r < ROWS; ++r) {                                                 \
      ACC_T v[VEC];                                                                         \
      fetch_a(a + LINE(r, M) * lda + (at), v);                                              \
      UNROLL for (int e = 0; e < VEC; ++e) TAKE_A(HOW, r, e % LANES, v[e], x_k[e], size_k[e]); \
    }                                                                                       \
  } while (0)
#define REST_A(HOW, at)                                                                     \
  UNROLL for (int r = 0; r < ROWS; ++r) {                                                   \
    const ACC_T v = LOAD_A(a, LINE(r, M) * lda + (at));                                     \
    TAKE_A(HOW, r, 0, v, x[at], size_x[at]);                                                \
  }
#define WALK_A(HOW, at) do {                                                                \
    ACC_T v[VEC];                                                                           \
    fetch_a(a + (long)(at) * lda + line0, v);                                               \
    const ACC_T x_k = x[at];                                                                \
    const SIZE_T size_k = size_x[at];                                                       \
    UNROLL for (int e = 0; e < VEC; ++e) TAKE_A(HOW, e, 0, v[e], x_k, size_k);              \
  } while (0)
#define REST_WALK_A(HOW, at)                                                                \
  for (int e = 0; e < VEC; ++e) {                                                           \
    const ACC_T v = LOAD_A(a, (long)(at) * lda + LINE(e, M));                               \
    TAKE_A(HOW, e, 0, v, x[at], size_x[at]);                                                \
  }
#if TRANS_A
#define SUMS_A(HOW) do {                        \
    clear(&s, VEC);                             \
    WALK(HOW, M, K, WALK_A, REST_WALK_A)        \
    odd = s.odd;                                \
    FOLD(&s, VEC, ACROSS);                      \
  } while (0)

__kernel WORK_GROUP(ITEMS, 1, 1) void verify_a(
    GEMM_ARGS, CHECK_ARGS, __global const ACC_T *x, __global const SIZE_T *size_x, __global ACC_T *t, __global SIZE_T *size_t_)
{
  SCRATCH;
  GEMM_BEGIN;
  const int call = verdict[NEXT] - 1, line0 = FIRST_OF_WALK;
  x += BATCH_ENTRY * PARTS_X * K;
  size_x += BATCH_ENTRY * PARTS_X * K;
  rows += BATCH_ENTRY * M;
  sums_t s;
  uint odd;
  SUMS_A(FAST);
  if (ANY_ITEM(not_finite(&s, VEC))) {
    SUMS_A(CAREFUL);
    for (int r = 0; r < VEC; ++r)
      if (odd >> r & 1) rows[LINE(r, M)] = call + 1;
  }
  STORE_WALK(s, M, t, size_t_);
}
#endif

/* ---- beta C + bias */

#define REST_C(at)                                                                            \
  UNROLL for (int r = 0; r < ROWS; ++r) {                                                     \
    const long i = LINE(r, M);                                                                \
    ACC_T v = ACC_ZERO;                                                                       \
    SIZE_T own = 0;                                                                           \
    if (HAS_C) {                                                                              \
      v = SCALE(beta, LOAD_C(c, i * c_rs + (long)(at) * c_cs));                               \
      own += SIZE(v);                                                                         \
    }                                                                                         \
    if (BIAS) {                                                                               \
      const ACC_T shift = LOAD_BIAS(bias, (BIAS == 1 ? (long)(at) : i) * bias_stride);        \
      v = ADD(v, shift);                                                                      \
      own += SIZE(shift);                                                                     \
    }                                                                                         \
    TAKE(FAST, s, r, 0, SIGNED(v, at, seed), own, v);                                            \
  }

__kernel WORK_GROUP(ITEMS, 1, 1) void verify_c(GEMM_ARGS, CHECK_ARGS, __global ACC_T *u, __global SIZE_T *size_u)
{
  SCRATCH;
  GEMM_BEGIN;
  const uint seed = SEED(verdict[CALLS]);
  const int line0 = get_group_id(0) * ROWS;
  sums_t s;
  clear(&s, ROWS);
  for (int at = get_local_id(0); at < N; at += ITEMS) REST_C(at)
  FOLD(&s, ROWS, 1);
  STORE_DOT(s, M, u, size_u);
}

/* ---- out r, and what is said of it */

#define DOT_OUT(HOW, at) do {                                                               \
    const uint signs = signs_from(at, seed);                                                \
    UNROLL for (int r = 0; r < ROWS; ++r) {                                                 \
      ACC_T v[VEC];                                                                         \
      fetch_out(out + LINE(r, M) * ldo + (at), v);                                          \
      UNROLL for (int e = 0; e < VEC; ++e)                                                  \
        TAKE(HOW, s, r, e % LANES, FLIPPED(ADMIT_##HOW(v[e]), signs, e), 0, v[e]);          \
    }                                                                                       \
  } while (0)
#define REST_OUT(HOW, at) do {                                                              \
    const uint signs = signs_from(at, seed);                                                \
    UNROLL for (int r = 0; r < ROWS; ++r) {                                                 \
      const ACC_T v = LOAD_OUT(out, LINE(r, M) * ldo + (at));                               \
      TAKE(HOW, s, r, 0, FLIPPED(ADMIT_##HOW(v), signs, 0), 0, v);                          \
    }                                                                                       \
  } while (0)
/* A(i, :) B(:, j), and its size. */
INLINE ACC_T dot_product(
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

INLINE void raise_to(__global int *word, const int value) { atomic_max((volatile __global int *)word, value); }

/* Which columns of row i are wrong: noted in `verdict`. */
INLINE void note_columns(
    const int i, const int flagged, const int mark, __global int *verdict, __global const int *columns, const int N,
    const int K, __global const A_T *a, const long lda, __global const B_T *b, const long ldb, __global const OUT_T *out,
    const long ldo, __global const BIAS_T *bias, const long bias_stride, const ACC_T alpha, const SIZE_T whole,
    const SIZE_T factor, const SIZE_T rest)
{
  for (int j = get_local_id(0); j < N; j += ITEMS) {
    SIZE_T own;
    ACC_T value = SCALE(alpha, dot_product(i, j, K, a, lda, b, ldb, whole, &own));
    own *= SIZE(alpha);
#if BIAS
    const ACC_T shift = LOAD_BIAS(bias, (long)(BIAS == 1 ? j : i) * bias_stride);
    value = ADD(value, shift);
    own += SIZE(shift);
#endif
    const ACC_T is = LOAD_OUT(out, (long)i * ldo + j);
    const int is_flagged = flagged == 2 || (flagged == 1 && columns[j] == mark);
    if (IS_FINITE(is) == is_flagged || (!is_flagged && DIFFERS(is, value, factor * own + rest))) {
      raise_to(verdict + LOW_COLUMN, N - j);
      raise_to(verdict + HIGH_COLUMN, j + 1);
    }
  }
}

/* `largest` is the greatest number of out's type; parts: partial sums in t. */
__kernel WORK_GROUP(ITEMS, 1, 1) void verify_out(
    GEMM_ARGS, CHECK_ARGS, __global const ACC_T *x, __global const SIZE_T *size_x, __global const ACC_T *t,
    __global const SIZE_T *size_t_, __global const ACC_T *u, __global const SIZE_T *size_u, const SIZE_T factor,
    const SIZE_T rest, const SIZE_T largest)
{
  SCRATCH;
  __local int tickets[ROWS];
  GEMM_BEGIN;
  const int mark = verdict[NEXT], item = get_local_id(0), line0 = get_group_id(0) * ROWS;
  const uint seed = SEED(mark - 1);
  const int b_is_flagged = WITH_BOUND && K && verdict[FLAGGED] == mark;
  rows += BATCH_ENTRY * M;
  columns += BATCH_ENTRY * N;
  uint odd = 0, odd_a = 0; /* lines of out and of A with a NaN or an infinity */
  sums_t s;                /* y - alpha t, and the size of alpha t */
#if !TRANS_A
  x += BATCH_ENTRY * PARTS_X * K;
  size_x += BATCH_ENTRY * PARTS_X * K;
#endif
#define DIFFERENCES(HOW) do {                                                         \
    clear(&s, ROWS);                                                                  \
    PART_OF_A(HOW);                                                                   \
    odd_a |= s.odd;                                                                   \
    s.odd = 0;                                                                        \
    UNROLL for (int r = 0; r < ROWS; ++r)                                             \
      UNROLL for (int l = 0; l < LANES; ++l) {                                        \
        s.sum[r][l] = -SCALE(alpha, s.sum[r][l]);                                     \
        s.size[r][l] *= SIZE(alpha);                                                  \
      }                                                                               \
    DOT(HOW, N, DOT_OUT, REST_OUT)                                                    \
    odd = s.odd;                                                                      \
    FOLD(&s, ROWS, 1);                                                                \
  } while (0)
#if TRANS_A
#define PART_OF_A(HOW)                                                                \
  UNROLL for (int r = 0; r < ROWS; ++r) {                                             \
    for (int p = item; p < PARTS; p += ITEMS) {                                       \
      const long at = (BATCH_ENTRY * PARTS + p) * M + LINE(r, M);                     \
      s.sum[r][0] = s.sum[r][0] + t[at];                                              \
      s.size[r][0] += size_t_[at];                                                    \
    }                                                                                 \
    odd_a |= (uint)(WITH_BOUND && rows[LINE(r, M)] == mark) << r;                     \
  }
#else
#define PART_OF_A(HOW) DOT(HOW, K, DOT_A, REST_A)
#endif
  DIFFERENCES(FAST);
  if (not_finite(&s, ROWS)) { /* the same for all of the group */
    DIFFERENCES(CAREFUL);
    odd_a = ANY_ITEM(odd_a);
    odd = ANY_ITEM(odd);
  }
  ACC_T difference[ROWS];
  SIZE_T own[ROWS];
  UNROLL for (int r = 0; r < ROWS; ++r) {
    difference[r] = s.sum[r][0];
    own[r] = s.size[r][0];
#if HAS_C || BIAS
    difference[r] = difference[r] - u[BATCH_ENTRY * M + LINE(r, M)];
    own[r] += size_u[BATCH_ENTRY * M + LINE(r, M)];
#endif
  }
  /* Of lines with a NaN or an infinity: the sums of the columns that are left out, and how many elements are not as they
   * should be. */
  sums_t others;
  clear(&others, ROWS);
  uint overflows = 0; /* lines with an infinity that is right */
#define FLAGGED_ROW(r) (odd_a >> (r) & 1 ? 2 : b_is_flagged)
  if (WITH_BOUND && (b_is_flagged || odd || odd_a)) {
    for (int r = 0; r < ROWS; ++r)
      if (line0 + r < M)
        for (int j = item; j < N; j += ITEMS) {
          const ACC_T is = LOAD_OUT(out, (long)(line0 + r) * ldo + j);
          const int is_flagged = FLAGGED_ROW(r) == 2 || (b_is_flagged && columns[j] == mark);
          SIZE_T its_size = 0;
          ACC_T dot = ACC_ZERO;
          if (is_flagged ? FLAGGED_ROW(r) == 1 : !IS_FINITE(is)) dot = dot_product(line0 + r, j, K, a, lda, b, ldb, whole, &its_size);
          if (is_flagged) {
            others.sum[r][0] = others.sum[r][0] + SIGNED(dot, j, seed);
            others.size[r][0] += IS_FINITE(is);
          } else if (!IS_FINITE(is)) { /* infinity is right where the element may be too large for out */
            const int may_overflow = (HAS_C || BIAS ? own[r] : SIZE(alpha) * its_size) >= largest;
            others.size[r][0] += !may_overflow || IS_NAN(is);
            overflows |= 1u << r;
          }
        }
    FOLD(&others, ROWS, 1);
    overflows = ANY_ITEM(overflows);
  }
  uint wrong = 0;
  UNROLL for (int r = 0; r < ROWS; ++r) {
    const SIZE_T limit = factor * own[r] + rest;
    const ACC_T off = difference[r] + SCALE(alpha, others.sum[r][0]);
    /* Where sums may overflow, nothing can be said. */
    const int is_known = line0 + r < M && (!WITH_BOUND || isfinite(limit));
    const int is_odd = WITH_BOUND && (FLAGGED_ROW(r) || (odd >> r & 1));
    const int is_other = others.size[r][0] > 0;
    const int is_compared = !is_odd || (FLAGGED_ROW(r) != 2 && !(overflows >> r & 1) && HAS_C + BIAS == 0);
    if (is_known && (is_other || (is_compared && DIFFERS(off, ACC_ZERO, limit)))) {
      wrong |= 1u << r;
      if (item == 0) {
        tickets[r] = atomic_inc((volatile __global int *)verdict + WRONG);
        if (tickets[r] == 0) {
          verdict[FIRST_Z] = (int)BATCH_ENTRY;
          verdict[FIRST_ROW] = line0 + r;
          verdict[FIRST_CALL] = mark - 1;
          *(__global SIZE_T *)(verdict + ERROR) = (SIZE_T)SIZE(off);
          *(__global SIZE_T *)(verdict + LIMIT) = limit;
        }
        raise_to(verdict + LOW_ROW, M - line0 - r);
        raise_to(verdict + HIGH_ROW, line0 + r + 1);
        raise_to(verdict + LOW_Z, (int)get_global_size(2) - (int)BATCH_ENTRY);
        raise_to(verdict + HIGH_Z, (int)BATCH_ENTRY + 1);
        *alarm = 1;
      }
    }
  }
#if ITEMS > 1
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  for (int r = 0; r < ROWS; ++r) {
    if (!(wrong >> r & 1)) continue;
    if (HAS_C || tickets[r] >= 64) { /* these are not computed again: all columns */
      raise_to(verdict + LOW_COLUMN, N);
      raise_to(verdict + HIGH_COLUMN, N);
    } else {
      note_columns(line0 + r, FLAGGED_ROW(r), mark, verdict, columns, N, K, a, lda, b, ldb, out, ldo, bias, bias_stride, alpha,
                   whole, factor, rest);
    }
  }
  if (get_group_id(0) == 0 && BATCH_ENTRY == 0 && item == 0) verdict[CALLS] = mark;
}
