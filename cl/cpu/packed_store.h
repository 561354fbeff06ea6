/* packed, last step: store a register tile of packed_tile.h to out, through the epilogue. */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/packed_tile.h"
#include "cpu/turn.h"

/* 1: out has type ACC_T, and the epilogue is alpha * acc only */
#define VECTOR_STORE (PLANES == 1 && SAME_TYPE(OUT_TYPE, ACC_TYPE) && !HAS_C && !BIAS && !ACTIVATION)

/* Where a tile that should begin at `at` begins. Unless it is read from panels in global memory (packed 1) it moves back
 * to fit within `length`. In place (0) it may begin before 0: there are rows of other groups, where rows are divided. A
 * panel in local memory (2) may not. */
INLINE int moved(const int packed, const int at, const int tile, const int length)
{
  const int back = length - tile;
  if (packed == 1 || at <= back) return at;
  return packed == 2 && back < 0 ? 0 : back;
}

#if SWAPPED
#define OUT_INDEX(i, j, ldo) ((long)(j) * (ldo) + (i))
#else
#define OUT_INDEX(i, j, ldo) ((long)(i) * (ldo) + (j))
#endif

/* As in `finished` (gemm.h). */
#if REPRODUCIBLE
#define FINAL_SUM(sum) ((sum) + (VEC)(0))
#else
#define FINAL_SUM(sum) (sum)
#endif

/* Stores the tile. SWAPPED: its rows are columns of out. PER_LANE of them are turned at a time, the last ones moved back into
 * the tile; of its columns, rows of out, the first `cols` are stored. */
INLINE void store_vectors(
    VEC acc[ROWS][NV], __global REAL *out, const long ldo, const REAL alpha, const int cols)
{
#if SWAPPED && MR >= PER_LANE
  UNROLL for (int group = 0; group < MR; group += PER_LANE) {
    const int r = min(group, MR - PER_LANE);
    UNROLL for (int v = 0; v < NV; ++v) {
      VEC x[PER_LANE];
      UNROLL for (int q = 0; q < PER_LANE; ++q) x[q] = alpha * FINAL_SUM(acc[r + q][v]);
      turn_lanes(x);
      UNROLL for (int q = 0; q < PER_LANE; ++q)
        UNROLL for (int at = 0; at < LANES; at += PER_LANE) {
          const int s = v * LANES + at + q;
          if (s < cols) *(__global LANE *)(out + s * ldo + r) = ((const LANE *)&x[q])[at / PER_LANE];
        }
    }
  }
#elif SWAPPED
  VEC kept[TILE_VECS];
  FOR_TILE(r, v) kept[r * NV + v] = alpha * FINAL_SUM(acc[r][v]);
  const REAL *tile = (const REAL *)kept;
  for (int s = 0; s < cols; ++s)
    UNROLL for (int r = 0; r < MR; ++r) out[s * ldo + r] = tile[r * NR + s];
#else
  FOR_TILE(r, v) if (v * LANES < cols) *(__global LOOSE_VEC *)(out + r * ldo + v * LANES) = alpha * FINAL_SUM(acc[r][v]);
#endif
}

/* Stores the tile at (i, j) through the epilogue, without its first rows and columns. */
INLINE void store_elements(
    VEC acc[ROWS][NV], const int i, const int j, const int skip_rows, const int skip_cols, RESULT_ARGS)
{
  VEC kept[TILE_VECS];
  const REAL *tile = (const REAL *)kept;
  const int rows = min(MR, M - i);
  const int cols = min(NR, N - j);
#if VECTOR_STORE
  FOR_TILE(r, v) kept[r * NV + v] = alpha * FINAL_SUM(acc[r][v]);
  for (int r = skip_rows; r < rows; ++r)
    for (int s = skip_cols; s < cols; ++s) out[OUT_INDEX(i + r, j + s, ldo)] = tile[r * NR + s];
#else
  KEEP_TILE(kept, acc);
  for (int r = skip_rows; r < rows; ++r)
    for (int s = skip_cols; s < cols; ++s) {
#if APART
      const REAL *x = tile + 2 * r * NR * 2 + 2 * s;
      const REAL *y = x + NR * 2;
      const ACC_T value = (ACC_T)(x[0] - y[1], x[1] + y[0]);
#elif PLANES == 2
      const ACC_T value = (ACC_T)(tile[2 * (r * NR + s)], tile[2 * (r * NR + s) + 1]);
#else
      const ACC_T value = tile[r * NR + s];
#endif
      STORE_RESULT_AT(OUT_INDEX(i + r, j + s, ldo), i + r, j + s, value, RESULT);
    }
#endif
}

/* Stores the first `count` vectors of the tile of row i and column j, which begins at ti and tj. A tile that moved back,
 * but not before row i0 and column j0, is stored whole: it has computed the same values once more. Others may be storing
 * what lies before i0 and j0. */
INLINE void store_tile(
    VEC acc[ROWS][NV], const int i, const int j, const int ti, const int tj, const int i0, const int j0, const int count,
    RESULT_ARGS)
{
#if VECTOR_STORE
  const int width = count * LANES;
  if (ti >= i0 && tj >= j0 && ti + MR <= M && ((SWAPPED && count == NV) || tj + width <= N)) {
    /* Two calls, as one compiles to fewer instructions where all columns are there. */
    if (tj + width <= N) store_vectors(acc, out + OUT_INDEX(ti, tj, ldo), ldo, alpha, width);
    else store_vectors(acc, out + OUT_INDEX(ti, tj, ldo), ldo, alpha, N - tj);
    return;
  }
#endif
  store_elements(acc, ti, tj, i - ti, j - tj, RESULT);
}
