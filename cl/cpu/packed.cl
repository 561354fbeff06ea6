/* packed: out = A B for CPU devices, a register tile at a time, one work-item a work-group.
 *
 *                 j0    nc                 work-group (tile column, share * tile_rows + tile row, z),
 *              +-----+------+---+          the first two exchanged with rows_first:
 *              |  B  |//////|   | kc       for k0 in this share of K, in steps of kc:
 *              +-----+------+---+            for each NR columns, for each MR rows of the nc x mc tile:
 *       kc                                     acc  = A(MR rows, kc) B(kc, NR columns)
 *     +-----+  +-----+------+---+              acc += what the steps before have kept
 *     |/////|  |     | out  |   | mc           keep acc, or store it after the last step
 *     +-----+  +-----+------+---+
 *
 * kc x NR of B stay in the nearest cache while mc / MR tiles use them, mc x kc of A in the next. The
 * sums of a macro-tile wait in local memory. With SPLIT, shares of K go to work-groups of their own,
 * the sums go to `shares`, and packed_reduce adds them up in order.
 *
 * An operand that is read where it lies (PACK_A or PACK_B 0) has no zeros behind its edge. There the
 * last tile moves back into the matrix, and only its new rows and columns are stored.
 *
 * Macros: BM, BN, the largest mc and nc; SPLIT 0, 1; VECTOR_STORE 1: out holds ACC_T and takes
 * alpha * acc, nothing more. Those of packed_tile.h and packed_panels.cl, which come before.
 * Preconditions: mc, nc multiples of MR, NR; kc and split_k multiples of UNROLL_K; M >= MR without
 * PACK_A, N >= NR without PACK_B.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/packed_tile.h"
#include "cpu/packed_panels.h"

#if !defined(BM) || !defined(BN) || !defined(SPLIT) || !defined(VECTOR_STORE)
#error "packed.cl needs BM BN SPLIT VECTOR_STORE"
#endif

#define FEW_STEPS 16 /* kc up to here: B is read once, from memory */

/* A tile that begins at `at` begins here instead, so that it lies within `length`. */
#define MOVED(packed, at, tile, length) ((packed) ? (at) : min(at, (length) - (tile)))

/* Where the panels, or the operands themselves, have row i or column j at step k. */
#if PACK_A
#define A_START(i, k) (a_panels + get_global_id(2) * a_stack + (long)(i) * PADDED_K + (long)(k) * MR)
#else
#define A_START(i, k) (a + A_INDEX(i, k))
#endif
#if PACK_B
#define B_START(k, j) (b_panels + get_global_id(2) * b_stack + (long)(j) * K + (long)(k) * NR)
#else
#define B_START(k, j) (b + B_INDEX(k, j))
#endif

/* Shares lie (z, share, tile row, tile column), a register tile each. */
#define TILES_DOWN ((M + MR - 1) / MR)
#define TILES_ACROSS ((N + NR - 1) / NR)
#define SHARE_AT(share, i, j)                                                                \
  (shares + ((((long)get_global_id(2) * splits + (share)) * TILES_DOWN + (i) / MR) * TILES_ACROSS + (j) / NR) * TILE_VECS)
#if SPLIT
#define SUM_SPACE __global
#define SUM_AT(i, j) SHARE_AT(share, i, j)
#else
#define SUM_SPACE __local
#define SUM_AT(i, j) (sums + (((i) - i0) / MR * (BN / NR) + ((j) - j0) / NR) * TILE_VECS)
#endif

/* Ask for what is read next: NR columns of `steps` rows of B. Rows a page apart are no stream to a
 * processor that looks for one, so what it would fetch unasked has to be asked for. */
INLINE void prefetch_rows(__global const REAL *b, const long ldb, const int steps)
{
  for (int k = 0; k < steps; ++k)
    for (int at = 0; at < NR * PLANES; at += CACHE_LINE / sizeof(REAL)) PREFETCH(b + k * B_STEP + at);
}

INLINE void store_vectors(
    VEC acc[ROWS][NV], __global REAL *out, const long ldo, const REAL alpha)
{
  FOR_TILE *(__global LOOSE_VEC *)(out + r * ldo + v * LANES) = alpha * acc[r][v];
}

/* The tile at (i, j) through the shared epilogue, but for its first rows and columns. */
INLINE void store_elements(
    VEC acc[ROWS][NV], const int i, const int j, const int skip_rows, const int skip_cols, OUT_ARGS)
{
  VEC kept[TILE_VECS];
  KEEP_TILE(kept, acc);
  const REAL *tile = (const REAL *)kept;
  const int rows = min(MR, M - i);
  const int cols = min(NR, N - j);
  for (int r = skip_rows; r < rows; ++r)
    for (int s = skip_cols; s < cols; ++s) {
#if PLANES == 2
      const REAL *x = tile + 2 * r * NR * 2 + 2 * s;
      const REAL *y = x + NR * 2;
      const ACC_T value = (ACC_T)(x[0] - y[1], x[1] + y[0]);
#else
      const ACC_T value = tile[r * NR + s];
#endif
      STORE_RESULT(i + r, j + s, value);
    }
}

INLINE void store_tile(VEC acc[ROWS][NV], const int i, const int j, OUT_ARGS)
{
  const int ti = MOVED(PACK_A, i, MR, M);
  const int tj = MOVED(PACK_B, j, NR, N);
#if VECTOR_STORE
  if (i + MR <= M && j + NR <= N) {
    store_vectors(acc, out + (long)i * ldo + j, ldo, alpha);
    return;
  }
#endif
  store_elements(acc, ti, tj, i - ti, j - tj, OUT_PASS);
}

__kernel ONE_WIDE_ITEM void packed_multiply(
    GEMM_ARGS, const int mc, const int nc, const int kc, const int tile_rows, const int rows_first,
    const int splits, const int split_k, __global const ACC_T *a_panels, const long a_stack,
    __global const ACC_T *b_panels, const long b_stack, __global VEC *shares)
{
#if !SPLIT
  __local VEC sums[(BM / MR) * (BN / NR) * TILE_VECS];
#endif
  GEMM_BEGIN;
  const int down = get_group_id(!rows_first);
  const int share = down / tile_rows;
  const int i0 = (down - share * tile_rows) * mc;
  const int j0 = get_group_id(rows_first) * nc;
  const int k_begin = share * split_k;
  const int k_end = min(K, k_begin + split_k);
  int k0 = k_begin;
  do { /* once at least: without any k the result is the epilogue of zero */
    const int steps = min(kc, k_end - k0);
    for (int j = j0; j < min(N, j0 + nc); j += NR)
      for (int i = i0; i < min(M, i0 + mc); i += MR) {
        const int ti = MOVED(PACK_A, i, MR, M);
        const int tj = MOVED(PACK_B, j, NR, N);
        SUM_SPACE VEC *sum = SUM_AT(i, j);
        VEC acc[ROWS][NV];
        clear_tile(acc);
        if (i == i0 && kc <= FEW_STEPS)
          prefetch_rows((__global const REAL *)B_START(k0 + kc, tj), ldb, min(kc, k_end - k0 - kc));
        multiply_tile(
            acc, (__global const REAL *)A_START(ti, k0), lda, (__global const REAL *)B_START(k0, tj),
            ldb, steps);
        if (k0 > k_begin) ADD_TILE(acc, sum);
        if (SPLIT || k0 + kc < k_end) KEEP_TILE(sum, acc);
        else store_tile(acc, i, j, OUT_PASS);
      }
    k0 += kc;
  } while (k0 < k_end);
}

#if SPLIT
/* Adds the shares of one register tile, in their order, and stores it. */
__kernel ONE_WIDE_ITEM void packed_reduce(GEMM_ARGS, const int splits, __global VEC *shares)
{
  GEMM_BEGIN;
  const int i = get_group_id(1) * MR;
  const int j = get_group_id(0) * NR;
  VEC acc[ROWS][NV];
  clear_tile(acc);
  for (int share = 0; share < splits; ++share) ADD_TILE(acc, SHARE_AT(share, i, j));
  store_tile(acc, i, j, OUT_PASS);
}
#endif
