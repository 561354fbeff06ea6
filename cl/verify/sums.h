/* verify/sums: sums of the lines of a matrix and of their sizes, for verify/operands.cl and verify/result.cl.
 *
 * Sums run along contiguous elements (DOT: a work-group sums ROWS lines, a work-item VEC neighbours at a time), or across
 * them (WALK: a work-item sums VEC lines over one of SLICES slices; PARTS work-groups leave partial sums). Sums that are not
 * finite (FAST) are added anew (CAREFUL): then NaN and infinity count as 0, and their lines are told.
 *
 * Macros: those of gemm.h; SIZE_TYPE, float32 or float64: of the sums of sizes; ITEMS a power of two; ROWS; VEC; LANES, sums of a line in a work-item, divides VEC; SLICES divides
 * ITEMS; PARTS; WIDE_A WIDE_B WIDE_OUT, WIDE_SUMS for x, 1: lines begin at multiples of 16 bytes, and VEC elements are
 * multiples of that; WITH_BOUND 0 for integers; WEIGHTS 1: B is
 * quantised weights, of a format whose header comes before; DIVIDED 1: rows of out are divided among the products of a list; LEAST_A LEAST_B, 0 or a number: a device may take smaller elements, or sums of them, for 0, so
 * they count as wholly uncertain.
 */
#include "include/gemm.h"

#if !defined(SIZE_TYPE) || !defined(ITEMS) || !defined(ROWS) || !defined(VEC) || !defined(LANES) || !defined(SLICES) || \
    !defined(PARTS) || !defined(WIDE_A) || !defined(WIDE_B) || !defined(WIDE_OUT) || !defined(WIDE_SUMS) || !defined(WITH_BOUND) || \
    !defined(WEIGHTS) || !defined(DIVIDED) || !defined(LEAST_A) || !defined(LEAST_B)
#error "verify/sums.h needs SIZE_TYPE ITEMS ROWS VEC LANES SLICES PARTS WIDE_A WIDE_B WIDE_OUT WIDE_SUMS WITH_BOUND WEIGHTS DIVIDED LEAST_A LEAST_B"
#endif
/* A GPU keeps arrays in registers only where loops are unrolled; for a CPU that is 30 times as much to compile. */
#if ITEMS > 1
#define EACH UNROLL
#else
#define EACH
#endif

typedef CAT(elem_, SIZE_TYPE) SIZE_T;
/* On CPUs fabs may be a call, for each element (PoCL 3.0 with AVX2). */
#define positive_float32(v) as_float(as_uint(v) & 0x7fffffffu)
#define positive_float64(v) as_double(as_ulong(v) & 0x7ffffffffffffffful)
#if ITEMS > 1
#define POSITIVE(v) fabs(v)
#else
#define POSITIVE(v) CAT(positive_, SIZE_TYPE)(v)
#endif
/* FIRST_ROW(z, parts): where the sums of the rows of product z begin, each `parts` times. */
#if DIVIDED
#define ROW_IN_OUT (own[3] / ldo)
#define FIRST_ROW(z, parts) ROW_IN_OUT
#else
#define ROW_IN_OUT 0
#define FIRST_ROW(z, parts) ((z) * (parts) * OF_ALL(M))
#endif
#define SUMS (ROWS * LANES > VEC ? ROWS * LANES : VEC)

#if !WITH_BOUND
#define IS_FINITE(v) 1
#define IS_NAN(v) 0
#define SIZE(v) 0
#elif PLANES == 2
#define IS_FINITE(v) (isfinite((v).x) && isfinite((v).y))
#define IS_NAN(v) 0 /* a complex product may be NaN where it overflows */
#define SIZE(v) (POSITIVE((v).x) + POSITIVE((v).y))
#else
#define IS_FINITE(v) isfinite(v)
#define IS_NAN(v) isnan(v)
#define SIZE(v) POSITIVE(v)
#endif
#define ADMITTED(v) (IS_FINITE(v) ? (v) : ACC_ZERO)

/* Words of `verdict`: the number of calls; of the call that runs, + 1; of wrong rows. Of the first one its row of out,
 * call, and the bits of its error and limit. Of all, as numbers that only grow, INT_MAX - the first and 1 + the last column, row, product.
 * The last call + 1 in which B had a NaN or an infinity. */
enum { CALLS, NEXT, WRONG, FIRST_LINE = 4, FIRST_CALL, ERROR, LIMIT = 8, WRONG_COLUMNS = 10, WRONG_ROWS = 12,
       WRONG_PRODUCTS = 14, FLAGGED = 16 };
#define CHECK_ARGS __global int *verdict, __global int *alarm, __global int *rows, __global int *columns, const SIZE_T whole

/* The signs of j on: bit e is for j + e. A multiplicative hash of the number of the call and of j / 32. */
INLINE uint signs_from(const int j, const uint seed)
{
  uint h = ((uint)(j >> 5) ^ seed) * 0x9e3779b1u;
  h = (h ^ h >> 15) * 0x85ebca6bu;
  return (h ^ h >> 13) >> (j & 31);
}
#define SEED(call) (((uint)(call) + 1) * 0xc2b2ae35u) /* by 0 the first 32 signs would all be +1 */
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
#define DEFINE_FETCH(name, RESULT, T, LOAD_ONE, WIDE)                                                 \
  INLINE void name(__global const T *p, RESULT *v)                                                    \
  {                                                                                                   \
    if (WIDE) {                                                                                       \
      uint4 words[(VEC * sizeof(T) + 15) / 16];                                                       \
      EACH for (int w = 0; w < (int)(VEC * sizeof(T) / 16); ++w) words[w] = ((__global const uint4 *)p)[w]; \
      EACH for (int e = 0; e < VEC; ++e) v[e] = LOAD_ONE((const T *)words, e);                      \
    } else {                                                                                          \
      EACH for (int e = 0; e < VEC; ++e) v[e] = LOAD_ONE(p, e);                                     \
    }                                                                                                 \
  }
#define LOAD_OUT(p, i) LOAD(OUT_TYPE, p, i)
#define LOAD_SUM(p, i) (p)[i]
DEFINE_FETCH(fetch_a, ACC_T, A_T, LOAD_A, WIDE_A)
DEFINE_FETCH(fetch_b, ACC_T, B_T, LOAD_B, WIDE_B)
DEFINE_FETCH(fetch_out, ACC_T, OUT_T, LOAD_OUT, WIDE_OUT)
DEFINE_FETCH(fetch_x, ACC_T, ACC_T, LOAD_SUM, WIDE_SUMS)
DEFINE_FETCH(fetch_size, SIZE_T, SIZE_T, LOAD_SUM, WIDE_SUMS)
/* The same, or a single element: COUNT is VEC or 1. */
#define FETCH(COUNT, FETCH_VEC, LOAD_ONE, p, v) do { \
    if ((COUNT) == VEC) FETCH_VEC(p, v);              \
    else (v)[0] = LOAD_ONE(p, 0);                     \
  } while (0)

/* RUN_B elements of column j of B, from k on: weights come in runs, and are what the product multiplies, rounded to A's type. */
#if WEIGHTS
#include "quantized/rounded.h"
#define RUN_B 32
#else
#define RUN_B 1
#endif
INLINE void run_of_b(__global const B_T *b, const long ldb, const int k, const int j, const int K, ACC_T *v)
{
#if WEIGHTS
  float16 run[2];
  weights32(b + j * ldb, k, K, run, run + 1);
  run[0] = ROUNDED(run[0]), run[1] = ROUNDED(run[1]);
  EACH for (int e = 0; e < RUN_B; ++e) v[e] = ((const float *)run)[e];
#else
  v[0] = LOAD_B(b, B_INDEX(k, j, ldb));
#endif
}

/* The sums of lines in a work-item: LANES for each of ROWS lines, or one for each of VEC. If they are added with care,
 * `odd` has a bit for each line that has a NaN or an infinity. */
typedef struct {
  ACC_T sum[SUMS];
  SIZE_T size[SUMS];
  uint odd;
} line_sums_t;
INLINE void clear(line_sums_t *s)
{
  s->odd = 0;
  EACH for (int i = 0; i < SUMS; ++i) {
    s->sum[i] = ACC_ZERO;
    s->size[i] = 0;
  }
}
#define FAST 0
#define CAREFUL 1
#define ADMIT(HOW, v) (HOW ? ADMITTED(v) : (v))
/* Adds a term of line r, made of v, to sum i. */
#define TAKE(HOW, r, i, term, its_size, v) do {                 \
    s.sum[i] = s.sum[i] + (term);                               \
    s.size[i] += (its_size);                                    \
    s.odd |= (uint)(HOW && !IS_FINITE(v)) << (r);               \
  } while (0)

/* Adds the lanes of each line; then those of the work-items whose numbers are equal modulo `stride`, which all get the sums. */
#define FOLDED 4 /* lines at a time */
/* Which lines: how many a work-item has, sums of each, and how many work-items have lines of their own. */
#define OF_DOT ROWS, LANES, 1
#define OF_WALK VEC, 1, ACROSS
#define ACROSS (ITEMS / SLICES)
#define SCRATCH __local ACC_T sums[FOLDED * ITEMS]; __local SIZE_T sizes[FOLDED * ITEMS]
#define FOLD(s, which) fold(s, which, sums, sizes)
INLINE void fold(
    line_sums_t *s, const int lines, const int lanes, const int stride, __local ACC_T *sums, __local SIZE_T *sizes)
{
  for (int r = 0; lanes > 1 && r < lines; ++r) {
    ACC_T sum = ACC_ZERO;
    SIZE_T size = 0;
    for (int l = 0; l < lanes; ++l) { /* from 1 on, with lane 0 as the start, PoCL 7.1 adds all lanes twice */
      sum = sum + s->sum[r * lanes + l];
      size += s->size[r * lanes + l];
    }
    s->sum[r] = sum;
    s->size[r] = size;
  }
#if ITEMS > 1
  const int item = get_local_id(0);
  UNROLL for (int r0 = 0; r0 < lines; r0 += FOLDED) {
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < FOLDED; ++r)
      if (r0 + r < lines) {
        sums[r * ITEMS + item] = s->sum[r0 + r];
        sizes[r * ITEMS + item] = s->size[r0 + r];
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
        s->sum[r0 + r] = sums[r * ITEMS + item % stride];
        s->size[r0 + r] = sizes[r * ITEMS + item % stride];
      }
  }
#endif
}

/* Bits for the lines whose sums are not finite. */
INLINE uint not_finite(const line_sums_t *s, const int lines)
{
  uint found = 0;
#if WITH_BOUND
  EACH for (int r = 0; r < lines; ++r) found |= (uint)!(isfinite(s->size[r]) && IS_FINITE(s->sum[r])) << r;
#endif
  return found;
}

/* The bits that any work-item of the group has. */
#define ANY_ITEM(bits) any_item(bits, (__local volatile uint *)sums)
INLINE uint any_item(const uint bits, __local volatile uint *found)
{
#if ITEMS > 1 && WITH_BOUND
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0) *found = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (bits) atomic_or(found, bits);
  barrier(CLK_LOCAL_MEM_FENCE);
  return *found;
#else
  return bits;
#endif
}

/* DOT: TERMS(HOW, COUNT, at) for COUNT neighbours from `at` on of ROWS lines, VEC or single ones. With care, which is rare:
 * single ones. */
#define DOT(HOW, length, TERMS)                                                                     \
  for (int at_ = (int)get_local_id(0) * (HOW ? 1 : VEC); at_ < (length); at_ += ITEMS * (HOW ? 1 : VEC)) { \
    if (HOW) TERMS(HOW, 1, at_);                                                                    \
    else if (at_ + VEC <= (length)) TERMS(HOW, VEC, at_);                                           \
    else                                                                                            \
      for (int one_ = at_; one_ < (length); ++one_) TERMS(HOW, 1, one_);                            \
  }
#define LINE(r, lines) ((long)min(line0 + (r), (LISTED ? max(lines, 1) : (lines)) - 1))

#define PARTS_X (TRANS_B ? PARTS : 1) /* how far the sums of the products of a stack are apart, in K */
#define TAKE_A(HOW, r, i, v, x_k, size_k)                                                                \
  TAKE(HOW, r, i, MUL(ADMIT(HOW, v), x_k), size_of(ADMIT(HOW, v), LEAST_A, whole) * (size_k), v)
#define TAKE_SIGNED(HOW, r, i, v, signs, e, SIZE_OF) \
  TAKE(HOW, r, i, FLIPPED(ADMIT(HOW, v), signs, e), SIZE_OF(ADMIT(HOW, v)), v)
/* Which sum of line r has element e of COUNT from `at` on. */
#define ITS_LANE(COUNT, r, at, e) ((r) * LANES + ((COUNT) == VEC ? (e) : (at)) % LANES)
/* Adds COUNT neighbours from `at` on of ROWS lines, with signs; LINE_INTO loads those of line r into v. */
#define SIGNED_LINES(HOW, COUNT, LINE_INTO, at, SIZE_OF) do {                                           \
    const uint signs = signs_from(at, seed);                                                            \
    EACH for (int r = 0; r < ROWS; ++r) {                                                               \
      ACC_T v[COUNT];                                                                                   \
      LINE_INTO;                                                                                        \
      EACH for (int e = 0; e < COUNT; ++e)                                                              \
        TAKE_SIGNED(HOW, r, ITS_LANE(COUNT, r, at, e), v[e], signs, e, SIZE_OF);                            \
    }                                                                                                   \
  } while (0)

/* beta C(i, j) + bias, and its size. */
INLINE ACC_T extras_of(
    const long i, const int j, __global const C_T *c, const long c_rs, const long c_cs, __global const BIAS_T *bias,
    const long bias_stride, const ACC_T beta, SIZE_T *size)
{
  ACC_T sum = ACC_ZERO;
  *size = 0;
#if HAS_C
  sum = SCALE(beta, LOAD_C(c, i * c_rs + j * c_cs));
  *size += SIZE(sum);
#endif
#if BIAS
  const ACC_T shift = LOAD_BIAS(bias, (BIAS == 1 ? j : i) * bias_stride);
  sum = ADD(sum, shift);
  *size += SIZE(shift);
#endif
  return sum;
}
