/* ptx_mma: mma.sync (sm_80), as inline PTX. The 32 work-items of a sub-group multiply fragments in
 * registers: D (16 x 8) += A (16 x 32 bytes of K) B (32 bytes of K x 8). Work-item 4 g + t holds
 *
 *   a[h + 2 q]   A: row g + 8 h, bytes 4 t .. 4 t + 3 of half q of the 32 bytes
 *   b[q]         B: column g,    bytes 4 t .. 4 t + 3 of half q
 *   d[2 h + c]   D: row g + 8 h, column 2 t + c
 *
 *                 K: bytes 0 .. 15 | 16 .. 31                  columns 0 1 | 2 3 | 4 5 | 6 7
 *     A row g            a[0]      |   a[2]         D row g          t = 0 |  1  |  2  |  3    d[0..1]
 *       row g + 8        a[1]      |   a[3]           row g + 8      t = 0 |  1  |  2  |  3    d[2..3]
 *
 * With float64 and MMA_K of K (D (16 x 8) += A (16 x MMA_K) B (MMA_K x 8)) it holds
 *
 *   a[h + 2 q]  A: row g + 8 h, k = t + 4 q       b[q]  B: k = t + 4 q, column g
 *
 * Macros: ELEMENT (operands.h); A_TYPE and B_TYPE, the types of 8-bit integers; with float64 MMA_K 4, 8; without it there is
 * mma_double alone. 8 needs sm_90; 4 is two instructions of 8 x 8 x 4, the only ones of sm_80.
 * Technique: the fragment layouts of NVIDIA's PTX manual.
 */
#include "nvidia/operands.h"
#include "nvidia/ptx.h"

#if ELEMENT_BYTES == 8
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
#else
#if ELEMENT_BYTES == 1
#define MMA_KIND "m16n8k32.row.col.s32." TEXT(PTX_BYTES(A_TYPE)) "." TEXT(PTX_BYTES(B_TYPE)) ".s32"
typedef int mma_acc;
#define MMA_REG(x) "+r"(x)
#else
#define mma_float16 "m16n8k16.row.col.f32.f16.f16.f32"
#define mma_bfloat16 "m16n8k16.row.col.f32.bf16.bf16.f32"
#define mma_float32 "m16n8k8.row.col.f32.tf32.tf32.f32"
#define MMA_KIND CAT(mma_, ELEMENT)
typedef float mma_acc;
#define MMA_REG(x) "+f"(x)
#endif

/* D += A B. */
INLINE void mma(mma_acc *d, const uint *a, const uint *b)
{
  asm volatile("mma.sync.aligned." MMA_KIND " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : MMA_REG(d[0]), MMA_REG(d[1]), MMA_REG(d[2]), MMA_REG(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The bits of a float32, rounded to TF32: matrix units would truncate them. Other types stay as they are. */
INLINE uint mma_operand(const uint word)
{
#if ELEMENT_BYTES == 4
  uint rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(as_float(word)));
  return rounded;
#else
  return word;
#endif
}
#endif
