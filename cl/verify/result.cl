/* verify/result: is `out` the product? Row sums of out against what verify/operands.cl has found.
 *
 *   verify_out   y_i = sum_j out(i, j) r_j; t_i too, where A is stored along k
 *                wrong: |y_i - alpha t_i - u_i| > factor (|alpha| size_t_i + size_u_i) + |alpha| lost + rest_of_out
 *
 * Integers must be equal modulo 2^bits of out's type. In a row of A and a column of B with a NaN or an infinity all of out
 * must be NaN or infinite, and nothing else may be, but for an infinity where an element may be too large. Such a column, or
 * element, is taken out of t_i by its dot product. Such a column is not in u_i.
 *
 * The group that finds a wrong row computes its elements again and so finds the wrong columns, if out is not C. alarm[0]
 * becomes 1 with the first wrong row; the host looks at it. Macros: those of verify/sums.h.
 */
#include "verify/sums.h"

#define HAS_EXTRAS (HAS_C || BIAS != 0)
#if WITH_BOUND
#define DIFFERS(x, y, limit) ((SIZE_T)SIZE((x) - (y)) > (limit))
#else
#define OUT_MASK (~(ACC_T)0 >> 8 * (sizeof(ACC_T) - sizeof(OUT_T)))
#define DIFFERS(x, y, limit) ((((x) - (y)) & OUT_MASK) != 0)
#endif

/* ---- A x, of an A stored along k */

#define DOT_A(HOW, COUNT, at) do {                                                          \
    ACC_T x_k[COUNT];                                                                       \
    SIZE_T size_k[COUNT];                                                                   \
    FETCH(COUNT, fetch_x, LOAD_SUM, x + (at), x_k);                                         \
    FETCH(COUNT, fetch_size, LOAD_SUM, size_x + (at), size_k);                              \
    EACH for (int r = 0; r < ROWS; ++r) {                                                   \
      ACC_T v[COUNT];                                                                       \
      FETCH(COUNT, fetch_a, LOAD_A, a + LINE(r, M) * lda + (at), v);                        \
      EACH for (int e = 0; e < COUNT; ++e)                                                  \
        TAKE_A(HOW, r, ITS_LANE(COUNT, r, at, e), v[e], x_k[e], size_k[e]);                     \
    }                                                                                       \
  } while (0)

/* ---- out r, and what is said of it */

#define NO_SIZE(v) 0
#define DOT_OUT(HOW, COUNT, at) \
  SIGNED_LINES(HOW, COUNT, FETCH(COUNT, fetch_out, LOAD_OUT, out + LINE(r, M) * ldo + (at), v), at, NO_SIZE)
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

/* Widens a range, two words of `verdict`, so that it has what is from first to last. */
INLINE void include(__global int *range, const int first, const int last)
{
  atomic_max((volatile __global int *)range, INT_MAX - first);
  atomic_max((volatile __global int *)range + 1, last + 1);
}

/* Which columns of row i are wrong: noted in `verdict`. C is as the product has read it. */
INLINE void note_columns(
    RESULT_ARGS, const int i, const int flagged, const int mark, __global int *verdict, __global const int *columns,
    const int K, __global const A_T *a, const long lda, __global const B_T *b, const long ldb, const SIZE_T whole,
    const SIZE_T factor, const SIZE_T rest, const SIZE_T largest)
{
  for (int j = get_local_id(0); j < N; j += ITEMS) {
    SIZE_T own, of_extras;
    const ACC_T product = SCALE(alpha, dot_product(i, j, K, a, lda, b, ldb, whole, &own));
    const ACC_T value = ADD(product, extras_of(i, j, c, c_rs, c_cs, bias, bias_stride, beta, &of_extras));
    own = own * SIZE(alpha) + of_extras;
    const ACC_T is = LOAD_OUT(out, (long)i * ldo + j);
    const int is_flagged = !IS_FINITE(value) || flagged == 2 || (flagged == 1 && columns[j] == mark);
    const int is_wrong = IS_FINITE(is) ? is_flagged || DIFFERS(is, value, factor * own + rest)
                                       : !is_flagged && (IS_NAN(is) || own < largest);
    if (is_wrong) include(verdict + WRONG_COLUMNS, j, j);
  }
}

/* `largest` is the greatest number of out's type. */
__kernel WORK_GROUP(ITEMS, 1, 1) void verify_out(
    GEMM_ARGS, CHECK_ARGS, __global const ACC_T *x, __global const SIZE_T *size_x, __global const ACC_T *t,
    __global const SIZE_T *size_t_, __global const ACC_T *u, __global const SIZE_T *size_u, const SIZE_T factor,
    const SIZE_T lost, const SIZE_T rest_of_out, const SIZE_T largest)
{
  SCRATCH;
  __local int tickets[ROWS];
  GEMM_BEGIN;
  const SIZE_T rest = SIZE(alpha) * lost + rest_of_out;
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
  line_sums_t s;                /* y - alpha t - u, and the size of alpha t + u */
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
    DOT(HOW, N, DOT_OUT)                                                              \
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
#define PART_OF_A(HOW) DOT(HOW, K, DOT_A)
#endif
  DIFFERENCES(FAST);
  if (not_finite(&s, ROWS)) { /* the same for all of the group */
    DIFFERENCES(CAREFUL);
    odd_a = ANY_ITEM(odd_a);
    odd = ANY_ITEM(odd);
  }
#if HAS_EXTRAS
  EACH for (int r = 0; r < ROWS; ++r) {
    s.sum[r] = s.sum[r] - u[FIRST_ROW(z, 1) + LINE(r, M)];
    s.size[r] += size_u[FIRST_ROW(z, 1) + LINE(r, M)];
  }
#endif
  /* Of lines with a NaN or an infinity: the sums of the columns that are left out, and how many elements are not as they
   * should be. */
  line_sums_t others;
  clear(&others);
  uint overflows = 0; /* lines with an infinity that is right */
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
          const int lane = ITS_LANE(1, r, j, 0);
          others.sum[lane] = others.sum[lane] + SIGNED(dot, j, seed);
          if (is_flagged) {
            others.size[lane] += IS_FINITE(is);
          } else if (!IS_FINITE(is)) { /* infinity is right where the element may be too large for out */
            const SIZE_T size = HAS_EXTRAS ? s.size[r] : SIZE(alpha) * its_size;
            others.size[lane] += isfinite(its_size) && (IS_NAN(is) || size < largest);
            overflows |= 1u << r;
          }
        }
    FOLD(&others, OF_DOT);
    overflows = ANY_ITEM(overflows);
  }
#endif
  uint wrong = 0;
  EACH for (int r = 0; r < ROWS; ++r) {
    const SIZE_T limit = factor * s.size[r] + rest;
    const ACC_T off = s.sum[r] + SCALE(alpha, others.sum[r]);
    /* Where sums may overflow, nothing can be said. */
    const int is_known = (!WITH_BOUND || isfinite(limit)) && line0 + r < M;
    const int is_other = others.size[r] > 0;
    const int is_compared = FLAGGED_ROW(r) != 2 && IS_FINITE(others.sum[r]) ? !(HAS_EXTRAS && overflows >> r & 1) : 0;
    if (is_known && (is_other || (is_compared && DIFFERS(off, ACC_ZERO, limit)))) {
      wrong |= 1u << r;
      if (item == 0) {
        tickets[r] = atomic_inc((volatile __global int *)verdict + WRONG);
        if (tickets[r] == 0) {
          verdict[FIRST_LINE] = row0 + r;
          verdict[FIRST_CALL] = mark - 1;
          *(__global SIZE_T *)(verdict + ERROR) = is_other ? (SIZE_T)INFINITY : (SIZE_T)SIZE(off);
          *(__global SIZE_T *)(verdict + LIMIT) = limit;
        }
        include(verdict + WRONG_ROWS, row0 + r, row0 + r);
        include(verdict + WRONG_PRODUCTS, (int)z, (int)z);
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
      include(verdict + WRONG_COLUMNS, 0, N - 1);
    } else {
      note_columns(RESULT, line0 + r, FLAGGED_ROW(r), mark, verdict, columns, K, a, lda, b, ldb, whole, factor, rest, largest);
    }
  }
  if (get_group_id(0) == 0 && BATCH_ENTRY == 0 && item == 0) verdict[CALLS] = mark;
}
