/* Products with a thin side: at most Q rows (THIN_ROWS 1) or Q columns (THIN_ROWS 0) of out.
 *
 *   out(q, x) = sum_k Y(q, k) X(k, x)         X is the big operand, Y the thin one
 *
 *   THIN_ROWS 1: X(k, x) = B(k, x), Y(q, k) = A(q, k)     0: X(k, x) = A(x, k), Y(q, k) = B(k, q)
 *
 * Such a product does 2 Q operations for each element of X that it reads, so memory bandwidth limits the speed.
 * Macros: THIN_ROWS; Q; CHUNK, elements of X in an access: 1, or as many as 16 bytes hold, for 16-bit types also as
 * many as 8 bytes hold; SPLIT (register.cl); those of gemm.h. A work-group's tile is Q by `tile_x` of x.
 */
#include "include/chunk.h"
#include "include/partial_sums.h"

#if !defined(THIN_ROWS) || !defined(Q) || !defined(CHUNK) || !defined(SPLIT)
#error "thin.h needs THIN_ROWS Q CHUNK SPLIT"
#endif
#define VEC CHUNK /* a chunk_t, if elements are stored in the accumulator's type */

#if THIN_ROWS
#define BIG(of_a, of_b) of_b
#define THIN(of_a, of_b) of_a
#else
#define BIG(of_a, of_b) of_a
#define THIN(of_a, of_b) of_b
#endif
typedef BIG(A_T, B_T) X_T;
typedef THIN(A_T, B_T) Y_T;
#define LOAD_X(p, i) BIG(LOAD_A(p, i), LOAD_B(p, i))
#define LOAD_Y(p, i) THIN(LOAD_A(p, i), LOAD_B(p, i))

/* acc + x y, with the element of A first: the order of a complex number's FMAs depends on it. */
#define MAC_XY(acc, x, y) BIG(MAC(acc, x, y), MAC(acc, y, x))

/* SHORT_X: X has 16-bit floats, and the accumulator has 32 bits */
#define short_float16 1
#define short_bfloat16 1
#define SHORT_X (CAT(short_, BIG(A_TYPE, B_TYPE)) && SAME_TYPE(ACC_TYPE, float32))

/* access_t: VEC elements of X as FETCH_X reads them. SPREAD_X(to, v) converts them to accumulators. 16-bit elements
 * are converted only when they are multiplied, so that accesses in flight take few registers. */
#if VEC > 1 && SHORT_X
#if VEC == 8
typedef uint4 access_t;
#define SPREAD_WORDS(to, v) ((to)[0] = (v).x, (to)[1] = (v).y, (to)[2] = (v).z, (to)[3] = (v).w)
#else
typedef uint2 access_t;
#define SPREAD_WORDS(to, v) ((to)[0] = (v).x, (to)[1] = (v).y)
#endif
#define FETCH_X(p) (*(__global const access_t *)(p))
#define SPREAD_X(to, v)                                              \
  do {                                                               \
    uint words_[VEC / 2];                                            \
    SPREAD_WORDS(words_, v);                                         \
    UNROLL for (int e_ = 0; e_ < VEC; ++e_) {                        \
      const ushort bits_ = (ushort)(words_[e_ / 2] >> e_ % 2 * 16);  \
      (to)[e_] = LOAD_X((const X_T *)&bits_, 0);                     \
    }                                                                \
  } while (0)
#elif VEC > 1
typedef chunk_t access_t;
#define FETCH_X(p) (*(__global const access_t *)(p))
#define SPREAD_X(to, v) SPREAD(to, v)
#else
typedef ACC_T access_t;
#define FETCH_X(p) LOAD_X(p, 0)
#define SPREAD_X(to, v) ((to)[0] = (v))
#endif

/* Adds `count` values of each of `parts` work-items, `apart` places from one to the next, of `items` in the work-group; part
 * 0 gets the sums. At each level the upper half of the parts passes its values to the lower half. Each value has its own
 * place, so a level needs only one barrier. */
INLINE void sum_over_items(
    ACC_T *value, const int count, __local ACC_T *scratch, const int items, const int part, const int parts,
    const int apart)
{
  const int item = get_local_id(0);
  for (int half_of = parts / 2; half_of > 0; half_of /= 2) {
    if (part >= half_of && part < 2 * half_of)
      UNROLL for (int n = 0; n < count; ++n) scratch[n * items + item] = value[n];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part < half_of)
      UNROLL for (int n = 0; n < count; ++n) value[n] = value[n] + scratch[n * items + item + half_of * apart];
  }
  barrier(CLK_LOCAL_MEM_FENCE); /* before the next values are written */
}

/* Stores the sum of element (q, x), complete or partial. Its tile begins at x0. */
INLINE void store_sum(
    const int q, const int x, const int x0, const int tile_x, const ACC_T sum, __global ACC_T *partial, RESULT_ARGS)
{
#if SPLIT
  partial[partial_of_work_group(Q * tile_x) + (THIN_ROWS ? q * tile_x + x - x0 : (x - x0) * Q + q)] = sum;
#else
  STORE_RESULT(THIN_ROWS ? q : x, THIN_ROWS ? x : q, sum, RESULT);
#endif
}
