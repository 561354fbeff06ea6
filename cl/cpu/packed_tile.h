/* The register tile of the packed kernels: its types, its product, its sums.
 *
 *              NR columns = NV vectors           one work-item holds ROWS x NV vectors in registers:
 *            +----------+----------+
 *   k = 0    |    b0    |    b1    |             acc[r][v] += a(r, k) * b(k, v)
 *   k = 1    |    b0    |    b1    |
 *            +----------+----------+             a(r, k) is one number, spread over a vector by the
 *   +--+--+  +----------+----------+             multiplication; b(k, v) is loaded once for
 *   |a |a |  | acc[r][0]| acc[r][1]|             all rows.
 *   +--+--+  +----------+----------+
 *
 * Complex numbers: PLANES = 2 reals side by side. The real and the imaginary part of a row of A are two rows of
 * this tile, and B's columns stay interleaved. So the tile computes a real product. Only the store combines
 * x = a.re * (b.re, b.im)  and  y = a.im * (b.re, b.im)  to  x + i y.
 *
 * With REPRODUCIBLE 1 the parts of a row of A are not apart. They multiply the same sums one after the other, the second
 * one B's columns with real and imaginary parts exchanged: acc += a.re * (b.re, b.im), acc += a.im * (-b.im, b.re).
 *
 * Panels, in elements; a panel is MR rows of A, or NR columns of B, over all k:
 *   A, TRANS_A 1   (i, k) at k*MR + i                    the order of A in memory
 *   A, TRANS_A 0   (i, k) at (k/4)*4*MR + i*4 + k%4      four k of a row stay together
 *   B              (k, j) at k*NR + j
 *
 * Macros: MR, NR, the tile in elements (LANES divides NR * PLANES); PACK_A, PACK_B, 1: read from panels, 0: read the
 * operand in place; PACK_B 2: read from a panel in local memory; those of vectors.h.
 * Technique: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008); Van
 * Zee and van de Geijn, "BLIS" (2015); complex as real: Van Zee and Smith, "Implementing
 * high-performance complex matrix multiplication via the 1m method" (2017).
 */
#include "cpu/vectors.h"
#include "cpu/vector_loads.h"

#if !defined(MR) || !defined(NR) || !defined(PACK_A) || !defined(PACK_B)
#error "packed_tile.h needs MR NR PACK_A PACK_B"
#endif

#define UNROLL_K 4 /* steps of k in a loop body; a panel of A keeps so many k of a row together */
#define APART (PLANES == 2 && !REPRODUCIBLE) /* 1: the real and the imaginary part of A have sums of their own */
#define ROWS (APART ? MR * PLANES : MR)
#define NV (NR * PLANES / LANES)
#define TILE_VECS (ROWS * NV)
/* Columns of the tile at column j: a vector, if that has all that are left and the tile moves back. */
#define WIDTH(j, n) (PACK_B != 1 && PLANES == 1 && NV > 1 && (n) - (j) <= LANES ? LANES : NR)
#define FOR_TILE(r, v) \
  UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int v = 0; v < NV; ++v)

/* Offsets in reals; leading dimensions are in elements. A_AT: row r of the tile at step u of UNROLL_K; A_STEP: from
 * one UNROLL_K steps of A to the next; B_STEP: from one step of B to the next. */
#if PACK_A
#define A_STEP(lda) (UNROLL_K * MR * PLANES)
#if TRANS_A
#define ELEMENT_AT(i, u, lda) ((u) * MR + (i))
#else
#define ELEMENT_AT(i, u, lda) ((i) * UNROLL_K + (u))
#endif
#elif TRANS_A
#define A_STEP(lda) (UNROLL_K * (lda) * PLANES)
#define ELEMENT_AT(i, u, lda) ((u) * (lda) + (i))
#else
#define A_STEP(lda) (UNROLL_K * PLANES)
#define ELEMENT_AT(i, u, lda) ((i) * (lda) + (u))
#endif
#define A_AT(r, u, lda) (ELEMENT_AT((r) / PLANES, u, lda) * PLANES + (r) % PLANES)
#if PACK_B == 2 /* where multiply_tile reads B */
#define B_SPACE __local
#else
#define B_SPACE __global
#endif
#if PACK_B
#define B_STEP(ldb) (NR * PLANES)
#define LOAD_ROW(p) (*(B_SPACE const VEC *)(p))
typedef REAL B_NUMBER;
#else
#define B_STEP(ldb) ((ldb) * PLANES)
#define LOAD_ROW(p) VEC_B(p)
typedef B_REAL B_NUMBER;
#endif

INLINE void clear_tile(VEC acc[ROWS][NV])
{
  FOR_TILE(r, v) acc[r][v] = (VEC)(0);
}

/* acc += a column of A times the first `count` vectors of a row of B, at step u. */
INLINE void multiply_step(
    VEC acc[ROWS][NV], __global const REAL *a, const long lda, B_SPACE const B_NUMBER *b, const int u, const int count)
{
  VEC row[NV];
  UNROLL for (int v = 0; v < NV; ++v) if (v < count) row[v] = LOAD_ROW(b + v * LANES);
#if PLANES == 2 && !APART
  VEC turned[NV];
  UNROLL for (int v = 0; v < NV; ++v) {
    turned[v].even = -row[v].odd;
    turned[v].odd = row[v].even;
  }
  UNROLL for (int r = 0; r < ROWS; ++r) {
    const VEC x = (VEC)(a[A_AT(2 * r, u, lda)]), y = (VEC)(a[A_AT(2 * r + 1, u, lda)]);
    UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = FMA_VEC(x, row[v], acc[r][v]);
    UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = FMA_VEC(y, turned[v], acc[r][v]);
  }
#else
  UNROLL for (int r = 0; r < ROWS; ++r) {
    const VEC x = (VEC)(a[A_AT(r, u, lda)]);
    UNROLL for (int v = 0; v < NV; ++v) if (v < count) acc[r][v] = FMA_VEC(x, row[v], acc[r][v]);
  }
#endif
}

/* acc += A(tile, 0..K) B(0..K, tile), starting where a and b point: the first `count` vectors. */
INLINE void multiply_tile(
    VEC acc[ROWS][NV], __global const REAL *a, const long lda, B_SPACE const B_NUMBER *b,
    const long ldb, const int K, const int count)
{
  int k = 0;
  for (; k <= K - UNROLL_K; k += UNROLL_K) {
    UNROLL for (int u = 0; u < UNROLL_K; ++u)
    {
      multiply_step(acc, a, lda, b, u, count);
      b += B_STEP(ldb);
    }
    a += A_STEP(lda);
  }
  for (int u = 0; u < K - k; ++u) {
    multiply_step(acc, a, lda, b, u, count);
    b += B_STEP(ldb);
  }
}

#define ADD_TILE(acc, sum) FOR_TILE(r, v) acc[r][v] += (sum)[r * NV + v]
#define TAKE_TILE(acc, sum) FOR_TILE(r, v) acc[r][v] = (sum)[r * NV + v]
#define KEEP_TILE(sum, acc) FOR_TILE(r, v) (sum)[r * NV + v] = acc[r][v]
