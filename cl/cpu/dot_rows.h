/* Dot products of ROWS rows of the matrix w with VECTORS vectors x, both stored along K.
 *
 *         k ->
 *   w0  |====|====|====|==|    each step loads LANES numbers of every row and every vector, and adds
 *   w1  |====|====|====|==|    ROWS x VECTORS vectors of products. At the end the lanes of a vector of sums
 *   x0  |====|====|====|==|    are added by halves. The last step overlaps the one before, where K
 *   x1  |====|====|====|==|    is no multiple of LANES. Few dot products are CHAINS sums each, of every CHAINS-th step.
 *
 * Complex numbers: the second plane of sums is of x with real and imaginary parts exchanged.
 * Macros: ROWS, VECTORS; X_IS_A, 1: M <= N, A is the vector, or the vectors; 0: B is; X_GAPS, 1: the elements of x are
 * step_x apart, and are loaded one by one.
 */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/vector_loads.h"

#if !defined(ROWS) || !defined(VECTORS) || !defined(X_IS_A) || !defined(X_GAPS)
#error "dot_rows.h needs ROWS VECTORS X_IS_A X_GAPS"
#endif
/* What is the vector's or the matrix's, of what there is for A and for B. */
#if X_IS_A
#define OF_X(of_a, of_b) of_a
#define OF_W(of_a, of_b) of_b
#else
#define OF_X(of_a, of_b) of_b
#define OF_W(of_a, of_b) of_a
#endif
#define VECTOR OF_X(a, b)
#define MATRIX OF_W(a, b)
typedef OF_X(A_REAL, B_REAL) X_REAL;
typedef OF_W(A_REAL, B_REAL) W_REAL;
#define X_AT(p, i) OF_X(REAL_A(p, i), REAL_B(p, i))
#define W_AT(p, i) OF_W(REAL_A(p, i), REAL_B(p, i))
#define X_VEC(p) OF_X(VEC_A(p), VEC_B(p))
#define W_VEC(p) OF_W(VEC_A(p), VEC_B(p))
#define X_SIGN (OF_X(CONJ_A, CONJ_B) ? -1 : 1) /* of imaginary parts */
#define W_SIGN (OF_W(CONJ_A, CONJ_B) ? -1 : 1)
#define FOR_PLANES(p) UNROLL for (int p = 0; p < PLANES; ++p)

#if PLANES == 2
/* The sum of w x from the sums of the products of real and imaginary parts. Names: w's part first. */
INLINE ACC_T element(const REAL re_re, const REAL re_im, const REAL im_re, const REAL im_im)
{
  return (ACC_T)(re_re - (W_SIGN * X_SIGN) * im_im, X_SIGN * re_im + W_SIGN * im_re);
}
#endif

INLINE void store_sum(const int v, const int j, const ACC_T sum, RESULT_ARGS)
{
  STORE_RESULT(X_IS_A ? v : j, X_IS_A ? j : v, sum, RESULT);
}

/* Chains of sums for each dot product: few would wait for each addition to end. */
#define SUMS (ROWS * VECTORS * PLANES)
#define CHAINS (SUMS <= 2 ? 4 : SUMS <= 4 ? 2 : 1)
#define FOR_CHAINS(c) UNROLL for (int c = 0; c < CHAINS; ++c)
#define FOR_DOTS(v, r) \
  UNROLL for (int v = 0; v < VECTORS; ++v) UNROLL for (int r = 0; r < ROWS; ++r)

/* The sum of the even and that of the odd numbers of a vector, added by halves. */
typedef CAT(REAL_NAME, 2) PAIR;
INLINE PAIR sum_of_pairs(const VEC x)
{
#if LANES == 16
  const CAT(REAL_NAME, 8) eight = x.lo + x.hi;
  const CAT(REAL_NAME, 4) four = eight.lo + eight.hi;
#elif LANES == 8
  const CAT(REAL_NAME, 4) four = x.lo + x.hi;
#elif LANES == 4
  const VEC four = x;
#endif
#if LANES == 2
  return x;
#else
  return four.lo + four.hi;
#endif
}

/* x with zeros in place of its first `skip` numbers, which may be NaN. */
#define mask_uint int
#define mask_float int
#define mask_ulong long
#define mask_double long
#define numbers_2 0, 1
#define numbers_4 numbers_2, 2, 3
#define numbers_8 numbers_4, 4, 5, 6, 7
#define numbers_16 numbers_8, 8, 9, 10, 11, 12, 13, 14, 15
typedef CAT(CAT(mask_, REAL_NAME), LANES) MASK;
INLINE VEC without(const int skip, const VEC x)
{
  return (MASK)(CAT(numbers_, LANES)) >= (MASK)(skip) ? x : (VEC)(0);
}

/* Number i of x, and LANES numbers from i on. */
#define X_PLACE(i) (X_GAPS ? (i) / PLANES * step_x * PLANES + (i) % PLANES : (i))
INLINE VEC x_vec(__global const X_REAL *x, const long step_x, const int i)
{
#if X_GAPS
  VEC found;
  UNROLL for (int lane = 0; lane < LANES; ++lane)((REAL *)&found)[lane] = X_AT(x, X_PLACE(i + lane));
  return found;
#else
  return X_VEC(x + i);
#endif
}

/* acc += products of LANES reals from k on, without the first `skip` of them. The second plane is x with real and
 * imaginary parts exchanged. */
INLINE void add_dots(
    VEC acc[VECTORS][PLANES][ROWS], __global const W_REAL *const rows[ROWS],
    __global const X_REAL *const xs[VECTORS], const long step_x, const int k, const int skip)
{
  VEC w[ROWS];
  UNROLL for (int r = 0; r < ROWS; ++r) w[r] = without(skip, W_VEC(rows[r] + k));
  UNROLL for (int v = 0; v < VECTORS; ++v) {
    VEC part[PLANES];
    part[0] = without(skip, x_vec(xs[v], step_x, k));
#if PLANES == 2
    part[1].even = part[0].odd;
    part[1].odd = part[0].even;
#endif
    FOR_PLANES(p) UNROLL for (int r = 0; r < ROWS; ++r) acc[v][p][r] = w[r] * part[p] + acc[v][p][r];
  }
}

/* sums[v][r] = rows[r] . xs[v] over `count` reals: vectors, the last of which may overlap the one before. */
INLINE void dot_rows(
    ACC_T sums[VECTORS][ROWS], __global const W_REAL *const rows[ROWS],
    __global const X_REAL *const xs[VECTORS], const long step_x, const int count)
{
  VEC chains[CHAINS][VECTORS][PLANES][ROWS];
  FOR_CHAINS(c) FOR_DOTS(v, r) FOR_PLANES(p) chains[c][v][p][r] = (VEC)(0);
  int k = 0;
  for (; CHAINS > 1 && k <= count - CHAINS * LANES; k += CHAINS * LANES)
    FOR_CHAINS(c) add_dots(chains[c], rows, xs, step_x, k + c * LANES, 0);
  VEC(*const acc)[PLANES][ROWS] = chains[0];
  UNROLL for (int c = 1; c < CHAINS; ++c) FOR_DOTS(v, r) FOR_PLANES(p) acc[v][p][r] += chains[c][v][p][r];
  for (; k <= count - LANES; k += LANES) add_dots(acc, rows, xs, step_x, k, 0);
  if (k > 0 && k < count) {
    add_dots(acc, rows, xs, step_x, count - LANES, k + LANES - count);
    k = count;
  }
  FOR_DOTS(v, r)
  {
    REAL sum[PLANES][PLANES] = {{0}}; /* [1: the other part of x than of w][imaginary part of w] */
    FOR_PLANES(p)
    {
      const PAIR pair = sum_of_pairs(acc[v][p][r]);
      sum[p][0] = pair.x;
      sum[p][PLANES - 1] += pair.y;
    }
    /* one element at a time: Intel's compiler vectorizes a loop over single reals with x[rest ^ p] wrongly */
    for (int rest = k; rest < count; rest += PLANES)
      FOR_PLANES(p) UNROLL for (int q = 0; q < PLANES; ++q)
        sum[p][q] += W_AT(rows[r], rest + q) * X_AT(xs[v], X_PLACE(rest + (p ^ q)));
#if PLANES == 2
    sums[v][r] = element(sum[0][0], sum[1][0], sum[1][1], sum[0][1]);
#else
    sums[v][r] = sum[0][0];
#endif
  }
}
