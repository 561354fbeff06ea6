/* verify/result: is `out` the product? Row sums of out against what verify/operands.cl has found.
 *
 *   verify_out   y_i = sum_j out(i, j) r_j; t_i too, where A is stored along k
 *                wrong: |y_i - alpha t_i - u_i| > factor (|alpha| size_t_i + size_u_i) + rest
 *
 * Integers must be equal modulo 2^bits of out's type. In a row of A and a column of B with a NaN or an infinity all of out
 * must be NaN or infinite, and nothing else may be, but for an infinity where an element may be too large. Such a column is
 * taken out of t_i by its dot product. With C or bias, only this is compared in such rows.
 *
 * The group that finds a wrong row computes its elements again and so finds the wrong columns, if out is not C. alarm[0]
 * becomes 1 with the first wrong row; the host looks at it. Macros: those of verify/sums.h.
 */
#include "verify/sums.h"

#if WITH_BOUND
#define DIFFERS(x, y, limit) ((SIZE_T)SIZE((x) - (y)) > (limit))
#else
#define OUT_MASK (~(ACC_T)0 >> 8 * (sizeof(ACC_T) - sizeof(OUT_T)))
#define DIFFERS(x, y, limit) ((((x) - (y)) & OUT_MASK) != 0)
#endif

/* ---- A x, of an A stored along k */

#define LINES_A(HOW, COUNT, FETCH_X, FETCH) do {                                             \
    ACC_T x_k[COUNT];                                                                       \
    SIZE_T size_k[COUNT];                                                                   \
    FETCH_X;                                                                                \
    EACH for (int r = 0; r < ROWS; ++r) {                                                   \
      ACC_T v[COUNT];                                                                       \
      FETCH;                                                                                \
      EACH for (int e = 0; e < COUNT; ++e)                                                  \
        TAKE_A(HOW, r, r * LANES + e % LANES, v[e], x_k[e], size_k[e]);                     \
    }                                                                                       \
  } while (0)
#define X_AT(at) fetch_x(x + (at), x_k), fetch_size(size_x + (at), size_k)
#define DOT_A(at) LINES_A(FAST, VEC, X_AT(at), fetch_a(a + LINE(r, M) * lda + (at), v))
#define REST_A(HOW, at) \
  LINES_A(HOW, 1, (x_k[0] = x[at], size_k[0] = size_x[at]), v[0] = LOAD_A(a, LINE(r, M) * lda + (at)))

/* ---- out r, and what is said of it */

#define NO_SIZE(v) 0
#define DOT_OUT(at) SIGNED_LINES(FAST, VEC, fetch_out(out + LINE(r, M) * ldo + (at), v), at, NO_SIZE)
#define REST_OUT(HOW, at) SIGNED_LINES(HOW, 1, v[0] = LOAD_OUT(out, LINE(r, M) * ldo + (at)), at, NO_SIZE)
/* A(i, :) B(:, j), and its size. */
INLINE ACC_T dot_product(
    const int i, const int j, const int K, __global const A_T *a, const long lda, __global const B_T *b, const long ldb,
    const SIZE_T whole, SIZE_T *size)
{
  ACC_T sum = ACC_ZERO;
  SIZE_T all = 0;
  for (int k = 0; k < K; k += RUN_B) {
    ACC_T run[RUN_B];
    run_of_b(b, ldb, k, j, K, run);
    for (int e = 0; e < RUN_B; ++e) {
      const ACC_T v = LOAD_A(a, A_INDEX(i, k + e, lda)), w = run[e];
      sum = MAC(sum, ADMITTED(v), ADMITTED(w));
      all += size_of(ADMITTED(v), LEAST_A, whole) * size_of(ADMITTED(w), LEAST_B, whole);
    }
  }
  *size = all;
  return sum;
}

INLINE void raise_to(__global int *word, const int value) { atomic_max((volatile __global int *)word, value); }

/* Which columns of row i are wrong: noted in `verdict`. C is as the product has read it. */
INLINE void note_columns(
    const int i, const int flagged, const int mark, __global int *verdict, __global const int *columns, const int N,
    const int K, __global const A_T *a, const long lda, __global const B_T *b, const long ldb, __global const OUT_T *out,
    const long ldo, __global const C_T *c, const long c_rs, const long c_cs, __global const BIAS_T *bias, const long bias_stride,
    const ACC_T alpha, const ACC_T beta, const SIZE_T whole, const SIZE_T factor, const SIZE_T rest)
{
  for (int j = get_local_id(0); j < N; j += ITEMS) {
    SIZE_T own;
    ACC_T value = SCALE(alpha, dot_product(i, j, K, a, lda, b, ldb, whole, &own));
    own *= SIZE(alpha);
#if HAS_C
    const ACC_T its_c = SCALE(beta, LOAD_C(c, i * c_rs + j * c_cs));
    value = ADD(value, its_c);
    own += SIZE(its_c);
#endif
#if BIAS
    const ACC_T shift = LOAD_BIAS(bias, (long)(BIAS == 1 ? j : i) * bias_stride);
    value = ADD(value, shift);
    own += SIZE(shift);
#endif
    const ACC_T is = LOAD_OUT(out, (long)i * ldo + j);
    const int is_flagged = !IS_FINITE(value) || flagged == 2 || (flagged == 1 && columns[j] == mark);
    if (IS_FINITE(is) == is_flagged || (!is_flagged && DIFFERS(is, value, factor * own + rest))) {
      raise_to(verdict + LOW_COLUMN, INT_MAX - j);
      raise_to(verdict + HIGH_COLUMN, j + 1);
    }
  }
}

/* `largest` is the greatest number of out's type. Sums that are added with care have fewer lanes, so more roundings. */
__kernel WORK_GROUP(ITEMS, 1, 1) void verify_out(
    GEMM_ARGS, CHECK_ARGS, __global const ACC_T *x, __global const SIZE_T *size_x, __global const ACC_T *t,
    __global const SIZE_T *size_t_, __global const ACC_T *u, __global const SIZE_T *size_u, const SIZE_T factor,
    const SIZE_T factor_with_care, const SIZE_T rest, const SIZE_T largest)
{
  SCRATCH;
  FOUND;
  __local int tickets[ROWS];
  GEMM_BEGIN;
  const int mark = verdict[NEXT], item = get_local_id(0);
#if LISTED
  const long z = tile_listed.x;
  const int line0 = tile_listed.y;
#else
  const long z = BATCH_ENTRY;
  /* The last rows first: they are likely still in the cache. */
  const int line0 = ((int)get_num_groups(0) - 1 - (int)get_group_id(0)) * ROWS;
#endif
  const uint seed = SEED(mark - 1);
  const int b_is_flagged = WITH_BOUND && K && verdict[FLAGGED] == mark;
  const int row0 = ROW_IN_OUT + line0; /* of what is told */
  rows += FIRST_ROW(z, 1);
  columns += z * OF_ALL(N);
  uint odd = 0, odd_a = 0; /* lines of out and of A with a NaN or an infinity */
  line_sums_t s;                /* y - alpha t, and the size of alpha t */
#if TRANS_A
  t += FIRST_ROW(z, PARTS);
  size_t_ += FIRST_ROW(z, PARTS);
#else
  x += z * PARTS_X * OF_ALL(K);
  size_x += z * PARTS_X * OF_ALL(K);
#endif
#define DIFFERENCES(HOW) do {                                                         \
    clear(&s);                                                                        \
    PART_OF_A(HOW);                                                                   \
    odd_a |= s.odd;                                                                   \
    s.odd = 0;                                                                        \
    EACH for (int i = 0; i < SUMS; ++i) {                                             \
      s.sum[i] = -SCALE(alpha, s.sum[i]);                                             \
      s.size[i] *= SIZE(alpha);                                                       \
    }                                                                                 \
    DOT_##HOW(N, DOT_OUT, REST_OUT)                                                   \
    odd = s.odd;                                                                      \
    FOLD(&s, OF_DOT);                                                                 \
  } while (0)
#if TRANS_A
#define PART_OF_A(HOW)                                                                \
  EACH for (int r = 0; r < ROWS; ++r) {                                             \
    for (int p = item; p < PARTS; p += ITEMS) {                                       \
      const long at = (long)p * OF_ALL(M) + LINE(r, M);                               \
      s.sum[r * LANES] = s.sum[r * LANES] + t[at];                                    \
      s.size[r * LANES] += size_t_[at];                                               \
    }                                                                                 \
    odd_a |= (uint)(WITH_BOUND && rows[LINE(r, M)] == mark) << r;                     \
  }
#else
#define PART_OF_A(HOW) DOT_##HOW(K, DOT_A, REST_A)
#endif
  DIFFERENCES(FAST);
  const int with_care = not_finite(&s, ROWS) != 0; /* the same for all of the group */
  if (with_care) {
    DIFFERENCES(CAREFUL);
    odd_a = ANY_ITEM(odd_a);
    odd = ANY_ITEM(odd);
  }
  ACC_T difference[ROWS];
  SIZE_T size[ROWS];
  EACH for (int r = 0; r < ROWS; ++r) {
    difference[r] = s.sum[r];
    size[r] = s.size[r];
#if HAS_C || BIAS
    difference[r] = difference[r] - u[FIRST_ROW(z, 1) + LINE(r, M)];
    size[r] += size_u[FIRST_ROW(z, 1) + LINE(r, M)];
#endif
  }
  /* Of lines with a NaN or an infinity: the sums of the columns that are left out, and how many elements are not as they
   * should be. */
  line_sums_t others;
  clear(&others);
  uint overflows = 0; /* lines with an infinity that is right */
#define SUMMED ROWS, 1, 1
#define FLAGGED_ROW(r) (odd_a >> (r) & 1 ? 2 : b_is_flagged)
#if WITH_BOUND
  if (b_is_flagged || odd || odd_a) {
    for (int r = 0; r < ROWS; ++r)
      if (line0 + r < M)
        for (int j = item; j < N; j += ITEMS) {
          const ACC_T is = LOAD_OUT(out, (long)(line0 + r) * ldo + j);
          const int is_flagged = (b_is_flagged && columns[j] == mark) || FLAGGED_ROW(r) == 2;
          SIZE_T its_size = 0;
          ACC_T dot = ACC_ZERO;
          if (is_flagged ? FLAGGED_ROW(r) == 1 : !IS_FINITE(is)) dot = dot_product(line0 + r, j, K, a, lda, b, ldb, whole, &its_size);
          if (is_flagged) {
            others.sum[r] = others.sum[r] + SIGNED(dot, j, seed);
            others.size[r] += IS_FINITE(is);
          } else if (!IS_FINITE(is)) { /* infinity is right where the element may be too large for out */
            const int may_overflow = (HAS_C || BIAS ? size[r] : SIZE(alpha) * its_size) >= largest;
            others.size[r] += !may_overflow || IS_NAN(is);
            overflows |= 1u << r;
          }
        }
    FOLD(&others, SUMMED);
    overflows = ANY_ITEM(overflows);
  }
#endif
  uint wrong = 0;
  EACH for (int r = 0; r < ROWS; ++r) {
    const SIZE_T limit = (b_is_flagged || odd_a || with_care ? factor_with_care : factor) * size[r] + rest;
    const ACC_T off = difference[r] + SCALE(alpha, others.sum[r]);
    /* Where sums may overflow, nothing can be said. */
    const int is_known = (!WITH_BOUND || isfinite(limit)) && line0 + r < M;
    const int is_odd = WITH_BOUND && (FLAGGED_ROW(r) || (odd >> r & 1));
    const int is_other = others.size[r] > 0;
    const int is_compared = is_odd ? HAS_C + BIAS == 0 && FLAGGED_ROW(r) != 2 && !(overflows >> r & 1) : 1;
    if (is_known && (is_other || (is_compared && DIFFERS(off, ACC_ZERO, limit)))) {
      wrong |= 1u << r;
      if (item == 0) {
        tickets[r] = atomic_inc((volatile __global int *)verdict + WRONG);
        if (tickets[r] == 0) {
          verdict[FIRST_Z] = (int)z;
          verdict[FIRST_LINE] = row0 + r;
          verdict[FIRST_CALL] = mark - 1;
          *(__global SIZE_T *)(verdict + ERROR) = is_other ? (SIZE_T)INFINITY : (SIZE_T)SIZE(off);
          *(__global SIZE_T *)(verdict + LIMIT) = limit;
        }
        raise_to(verdict + LOW_ROW, INT_MAX - row0 - r);
        raise_to(verdict + HIGH_ROW, row0 + r + 1);
        raise_to(verdict + LOW_Z, INT_MAX - (int)z);
        raise_to(verdict + HIGH_Z, (int)z + 1);
        *alarm = 1;
      }
    }
  }
#if ITEMS > 1
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  for (int r = 0; r < ROWS; ++r) {
    if (!(wrong >> r & 1)) continue;
    /* Not computed again, all columns: rows after so many, and where out is C. */
    if ((HAS_C && (ulong)c == (ulong)out) || tickets[r] >= 64) {
      raise_to(verdict + LOW_COLUMN, INT_MAX);
      raise_to(verdict + HIGH_COLUMN, N);
    } else {
      note_columns(line0 + r, FLAGGED_ROW(r), mark, verdict, columns, N, K, a, lda, b, ldb, out, ldo, c, c_rs, c_cs, bias,
                   bias_stride, alpha, beta, whole, factor, rest);
    }
  }
  if (get_group_id(0) == 0 && BATCH_ENTRY == 0 && item == 0) verdict[CALLS] = mark;
}
