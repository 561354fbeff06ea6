/* Dot products side by side: elements of neighbours in a stack are near in memory.
 *
 *          z ->                       each step of k loads a row of ACROSS elements of A and of B, and adds their
 *   A_k   |====|====|====|====|       products to as many sums, by vectors of LANES reals. Sums stay in registers.
 *   B_k   |====|====|====|====|
 *
 * Complex numbers: (re, im) pairs side by side. Each element's sum is mac_pair's of types.h, in its order.
 * Macros: ACROSS; GAPS_A, GAPS_B, 1: neighbours are near_a, near_b elements apart, before or behind, and are loaded one by
 * one; 2: they are the same element; those of gemm.h, vectors.h and vector_loads.h. LANES divides ACROSS * PLANES.
 */
#include "cpu/vectors.h"
#include "cpu/vector_loads.h"

#define ACROSS_VECS (ACROSS * PLANES / LANES)
#define FOR_VECS(v) UNROLL for (int v = 0; v < ACROSS_VECS; ++v)

/* acc + x y */
INLINE VEC mac_across(const VEC acc, const VEC x, const VEC y)
{
#if PLANES == 2
  VEC re, im, turned;
  re.even = x.even;
  re.odd = x.even;
  im.even = CONJ_A ? x.odd : -x.odd;
  im.odd = CONJ_A ? -x.odd : x.odd;
  turned.even = CONJ_B ? -y.odd : y.odd;
  turned.odd = y.even;
  VEC other = y;
  if (CONJ_B) other.odd = -y.odd;
  return FMA_VEC(im, turned, FMA_VEC(re, other, acc));
#else
  return FMA_VEC(x, y, acc);
#endif
}

/* Vector v of a row whose elements are `near` apart, one element after the other. */
#define DEFINE_APART(name, type, load)                                                       \
  INLINE VEC name(__global const type *row, const long near, const int v)                    \
  {                                                                                          \
    VEC x;                                                                                   \
    UNROLL for (int i = 0; i < LANES; ++i)((REAL *)&x)[i] =                                  \
        load(row, (v * (LANES / PLANES) + i / PLANES) * near * PLANES + i % PLANES);         \
    return x;                                                                                \
  }
DEFINE_APART(apart_a, A_REAL, REAL_A)
DEFINE_APART(apart_b, B_REAL, REAL_B)
#define ROW_A(row, v) (GAPS_A ? apart_a(row, GAPS_A == 2 ? 0 : near_a, v) : VEC_A((row) + (v) * LANES))
#define ROW_B(row, v) (GAPS_B ? apart_b(row, GAPS_B == 2 ? 0 : near_b, v) : VEC_B((row) + (v) * LANES))

/* sums = the dot products of `count` rows of A and B, next_a and next_b elements apart */
INLINE void dots_across(
    ACC_T sums[ACROSS], __global const A_T *a, const long next_a, const long near_a, __global const B_T *b, const long next_b,
    const long near_b, const int count)
{
  VEC acc[ACROSS_VECS];
  FOR_VECS(v) acc[v] = (VEC)(0);
  for (int k = 0; k < count; ++k) {
    __global const A_REAL *x = (__global const A_REAL *)(a + k * next_a);
    __global const B_REAL *y = (__global const B_REAL *)(b + k * next_b);
    FOR_VECS(v) acc[v] = mac_across(acc[v], ROW_A(x, v), ROW_B(y, v));
  }
  FOR_VECS(v) *(LOOSE_VEC *)((REAL *)sums + v * LANES) = acc[v];
}
