/* ptx_mma_double: mma.sync of float64, as inline PTX. The 32 work-items of a sub-group multiply fragments in registers:
 * D (16 x 8) += A (16 x MMA_K) B (MMA_K x 8). Work-item 4 g + t holds
 *
 *   a[h + 2 q]  A: row g + 8 h, k = t + 4 q       b[q]  B: k = t + 4 q, column g
 *   d[2 h + c]  D: row g + 8 h, column 2 t + c
 *
 * Macros: MMA_K 4, 8; without it there is mma_double alone. 8 needs sm_90; 4 is two instructions of 8 x 8 x 4, the only ones of
 * sm_80.
 * Technique: the fragment layouts of NVIDIA's PTX manual.
 */
#include "include/attributes.h"

/* D += A B of 8 of K. */
INLINE void mma_double(double *d, const double *a, const double b0, const double b1)
{
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"
               " {%0,%1,%2,%3};"
               : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
               : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b0), "d"(b1));
}

#ifdef MMA_K
/* D += A B of MMA_K. */
INLINE void mma(double *d, const double *a, const double *b)
{
#if MMA_K == 8
  mma_double(d, a, b[0], b[1]);
#else
  for (int h = 0; h < 2; ++h)
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(d[2 * h]), "+d"(d[2 * h + 1]) : "d"(a[h]), "d"(b[0]));
#endif
}
#endif
