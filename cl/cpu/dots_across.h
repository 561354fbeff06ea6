/* Dot products side by side: elements of neighbours in a stack are neighbours in memory.
 *
 *          z ->                       each step of k loads a row of ACROSS elements of A and of B, and adds their
 *   A_k   |====|====|====|====|       products to as many sums, by vectors of LANES reals. Sums stay in registers.
 *   B_k   |====|====|====|====|
 *
 * Complex numbers: (re, im) pairs side by side. Each element's sum is mac_pair's of types.h, in its order.
 * Macros: ACROSS; those of gemm.h, vectors.h and vector_loads.h. LANES divides ACROSS * PLANES.
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
#if CONJ_B
  VEC other = y;
  other.odd = -y.odd;
  return FMA_VEC(im, turned, FMA_VEC(re, other, acc));
#else
  return FMA_VEC(im, turned, FMA_VEC(re, y, acc));
#endif
#else
  return FMA_VEC(x, y, acc);
#endif
}

/* sums = the dot products of `count` rows of A and B, next_a and next_b elements apart */
INLINE void dots_across(
    ACC_T sums[ACROSS], __global const A_T *a, const long next_a, __global const B_T *b, const long next_b, const int count)
{
  VEC acc[ACROSS_VECS];
  FOR_VECS(v) acc[v] = (VEC)(0);
  for (int k = 0; k < count; ++k) {
    __global const A_REAL *x = (__global const A_REAL *)(a + k * next_a);
    __global const B_REAL *y = (__global const B_REAL *)(b + k * next_b);
    FOR_VECS(v) acc[v] = mac_across(acc[v], VEC_A(x + v * LANES), VEC_B(y + v * LANES));
  }
  FOR_VECS(v) *(LOOSE_VEC *)((REAL *)sums + v * LANES) = acc[v];
}
