/* packed: out = A B for CPU devices, one register tile after another, with one work-item in each work-group.
 *
 *                 j0    nc                 work-group (tile column, range * tile_rows + tile row, z),
 *              +-----+------+---+          the first two exchanged with rows_first:
 *              |  B  |//////|   | kc       for k0 in this range of K, in steps of kc:
 *              +-----+------+---+            for each NR columns, for each MR rows of the nc x mc tile:
 *       kc                                     acc  = A(MR rows, kc) B(kc, NR columns)
 *     +-----+  +-----+------+---+              acc += the sums of earlier steps
 *     |/////|  |     | out  |   | mc           keep acc, or store it after the last step
 *     +-----+  +-----+------+---+
 *
 * With REPRODUCIBLE 1 acc does not begin with zeros but with the sums of earlier steps, so that each sum is one chain.
 * That is no slower, but `REPRODUCIBLE 0` is more accurate: it adds shorter sums.
 *
 * kc x NR of B stay in the first-level cache while mc / MR tiles use them, and mc x kc of A in the second-level cache.
 * The sums of a macro-tile are kept in local memory. With SPLIT 1 each range of K has its own work-groups, and sums are
 * kept in `partial`. Of each NR columns the work-group that ends last adds those of all ranges (last_range.h).
 *
 * With PACK_B 2 each work-group packs the columns of B that it uses, one panel of kc steps at a time, in local memory.
 * That saves a launch and the way through memory, but each macro-tile of rows packs the same columns again.
 *
 * An operand that is read in place (PACK_A or PACK_B 0) has no zeros beyond its edge. So the last tile moves back
 * into the matrix (packed_store.h). With PACK_B 2 it does too, as whole tiles are stored faster. Of last columns that fill
 * no more than a vector, the tile is one vector wide.
 *
 * With SWAPPED 1 this is out^T = B^T A^T: `a` is the caller's b, `b` the caller's a, M and N are those of out^T, and out(i, j)
 * is at j*ldo + i. So of operands that are both transposed, neither is packed; of a transposed B, the smaller one.
 *
 * Macros: BM, BN, the largest mc and nc; SPLIT, SWAPPED 0, 1; with PACK_B 2 BK, the largest kc; those of the headers.
 * A launch computes one part of the result, whose rows of A are in panels (PART_ARGS in packed_panels.h).
 *
 * Preconditions: mc, nc multiples of MR, NR; kc and k_range multiples of UNROLL_K; M >= MR without
 * PACK_A, N >= NR without PACK_B.
 */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/packed_tile.h"
#include "cpu/packed_panels.h"
#include "cpu/packed_store.h"
#include "cpu/last_range.h"

#if !defined(BM) || !defined(BN) || !defined(SPLIT) || !defined(SWAPPED)
#error "packed.cl needs BM BN SPLIT SWAPPED"
#endif

#define AHEAD 16384L /* bytes of an operand of a list's next product that are prefetched at most */
#define FEW_STEPS 16 /* kc up to this: B is read from memory once */

/* The start of row i or column j at step k, in the panels or in the operand itself. */
#if PACK_A
#define A_START(a, panels, i, first, k, lda, K) ((panels) + (long)((i) - (first)) * PADDED(K) + (long)(k) * MR)
#else
#define A_START(a, panels, i, first, k, lda, K) ((a) + A_INDEX(i, k, lda))
#endif
#if PACK_B
#define B_START(b, panels, k, j, ldb, K) ((panels) + (long)(j) * (K) + (long)(k) * NR)
#else
#define B_START(b, panels, k, j, ldb, K) ((b) + B_INDEX(k, j, ldb))
#endif
/* Intel's compiler (SPIR-V) keeps parts of the addresses at which tiles begin in registers, and then stores a vector in the
 * loop of multiply_tile. If they are volatile it does not see the parts. With panels, and with PoCL, that is slower. */
#if defined(__SPIR64__) && !PACK_B
#define UNSEEN volatile
#else
#define UNSEEN
#endif

/* Prefetches what is read next: NR columns of `steps` rows of B. The processor's own prefetching does not recognize
 * rows a page apart as a stream. */
INLINE void prefetch_rows(__global const B_NUMBER *b, const long ldb, const int steps)
{
  for (int k = 0; k < steps; ++k)
    for (int at = 0; at < NR * PLANES; at += CACHE_LINE / sizeof(B_NUMBER)) PREFETCH(b + k * B_STEP(ldb) + at);
}

/* Called by the entry, so not INLINE, which would be for AVX512. */
static inline void prefetch_bytes(__global const char *from, const long bytes)
{
  for (long at = 0; at < bytes && at < AHEAD; at += CACHE_LINE) PREFETCH(from + at);
}

/* Vectors of a work-group's local memory: a panel of B, and the sums of a macro-tile. */
#if PACK_B == 2
#define PANEL_VECS (BK * NV)
#else
#define PANEL_VECS 0
#endif
#define LOCAL_VECS (PANEL_VECS + (SPLIT ? 0 : (BM / MR) * (BN / NR) * TILE_VECS))
#if SPLIT && PACK_B != 2
#define LOCAL_ARG
#define LOCAL
#define LOCAL_AGAIN
#else /* The sum is no constant, which LLVM would move into the function: PoCL 3.0 looks for no local memory there. */
#define LOCAL_ARG , __local VEC *memory
#define LOCAL , memory + get_local_id(0)
#define LOCAL_AGAIN , memory
#endif

/* Where the sums of the register tile at row i and column j are kept. `partial` is for a macro-tile. */
#if SPLIT
#define SUM_SPACE __global
#define MACRO_VECS ((long)(mc / MR) * (nc / NR) * TILE_VECS)
#define SUM_AT(i, j, range) \
  ((__global VEC *)partial + (range) * MACRO_VECS + ((i - i0) / MR * (nc / NR) + (j - j0) / NR) * TILE_VECS)
#else
#define SUM_SPACE __local
#define SUM_AT(i, j, range) (memory + PANEL_VECS + ((i - i0) / MR * (BN / NR) + (j - j0) / NR) * TILE_VECS)
#endif

/* The register tiles of a macro-tile at column j, which begin at column tj: their first `count` vectors, of `steps` steps
 * from k0 on. `columns`: column tj of B, or of its panel. */
INLINE void multiply_panel(
    __global const A_T *a, const long lda, B_SPACE const B_NUMBER *UNSEEN columns, const long ldb, const int K, const int mc,
    const int nc, const int kc, const int i0, const int j0, const int j, const int tj, const int k_begin, const int k_end,
    const int k0, const int steps, const int first_row, const int last_row, const int readable, const int range,
    const int split_k, __global const ACC_T *a_panels RANGE_ARGS LOCAL_ARG, const int count, RESULT_ARGS)
{
  for (int i = i0; i < min(last_row, i0 + mc); i += MR) {
    const int ti = moved(PACK_A, i, MR, readable);
    SUM_SPACE VEC *sum = SUM_AT(i, j, range);
    __global const REAL *UNSEEN rows = (__global const REAL *)A_START(a, a_panels, ti, first_row, k0, lda, K);
    VEC acc[ROWS][NV];
#if REPRODUCIBLE
    if (k0 > k_begin) TAKE_TILE(acc, sum);
    else clear_tile(acc);
#else
    clear_tile(acc);
#endif
#if !PACK_B
    if (i == i0 && kc <= FEW_STEPS)
      prefetch_rows(columns + (long)kc * B_STEP(ldb), ldb, min(kc, k_end - k0 - kc));
#endif
    multiply_tile(acc, rows, lda, columns, ldb, steps, count);
#if !REPRODUCIBLE
    if (k0 > k_begin) ADD_TILE(acc, sum);
#endif
    if (SPLIT || k0 + kc < k_end) KEEP_TILE(sum, acc);
    else store_tile(acc, i, j, ti, tj, i0, j0, count, RESULT);
  }
#if SPLIT
  if (k0 + kc < k_end || !ends_last(arrived + (j - j0) / NR, split_k)) return;
  for (int i = i0; i < min(last_row, i0 + mc); i += MR) {
    VEC acc[ROWS][NV];
    clear_tile(acc);
    for (int from = 0; from < split_k; ++from) ADD_TILE(acc, SUM_AT(i, j, from));
    store_tile(acc, i, j, moved(PACK_A, i, MR, readable), tj, i0, j, count, RESULT);
  }
#endif
}

#define MULTIPLY_PANEL(count) \
  multiply_panel(a, lda, columns, ldb, K, mc, nc, kc, i0, j0, j, tj, k_begin, k_end, k0, steps, first_row, last_row, readable, \
                 range, split_k, a_panels RANGES LOCAL_AGAIN, count, RESULT)

/* The macro-tile at row i0 and column j0, of steps k_begin to k_end - 1. `readable`: rows of A that can be read. */
WORK_OF_ENTRY void multiply_macro_tile(
    __global const A_T *a, const long lda, __global const B_T *b, const long ldb, const int K, const int mc, const int nc,
    const int kc, const int i0, const int j0, const int k_begin, const int k_end, const int first_row, const int last_row,
    const int readable, const int range, const int split_k, __global const ACC_T *a_panels,
    __global const ACC_T *b_panels RANGE_ARGS LOCAL_ARG, RESULT_ARGS)
{
  int k0 = k_begin;
  do { /* at least once: if K is 0 the result is the epilogue of zero */
    const int steps = min(kc, k_end - k0);
    for (int j = j0; j < min(N, j0 + nc); j += NR) {
      const int tj = moved(PACK_B, j, WIDTH(j, N), N);
#if PACK_B == 2
      pack_panel((__local ACC_T *)memory, b, ldb, N, tj, k0, k0 + steps);
      B_SPACE const B_NUMBER *columns = (B_SPACE const B_NUMBER *)memory;
#else
      __global const B_NUMBER *UNSEEN columns =
          (__global const B_NUMBER *)B_START(b, b_panels, k0, tj, ldb, K);
#endif
      if (WIDTH(j, N) == NR) MULTIPLY_PANEL(NV);
      else MULTIPLY_PANEL(1);
    }
    k0 += kc;
  } while (k0 < k_end);
}

/* Arguments that only some programs have. */
#if SPLIT
#define SPLIT_ARGS , const int tile_rows, const int split_k, const int k_range RANGE_ARGS
#else
#define SPLIT_ARGS
#endif
#if PACK_A
#define A_PANELS_ARGS , PART_ARGS, __global const ACC_T *a_panels, const long a_stack
#else
#define A_PANELS_ARGS
#endif
#if PACK_B == 1
#define B_PANELS_ARGS , __global const ACC_T *b_panels, const long b_stack
#else
#define B_PANELS_ARGS
#endif

__kernel ONE_WIDE_ITEM void packed_multiply(
    GEMM_ARGS, const int mc, const int nc, const int kc, const int rows_first SPLIT_ARGS A_PANELS_ARGS B_PANELS_ARGS)
{
#if !SPLIT || PACK_B == 2
  __local VEC memory[LOCAL_VECS];
#endif
  PACKED_BEGIN;
#if PACK_A
  a_panels += (BATCH_ENTRY - first_entry) * a_stack;
#else
  const int first_row = 0, last_row = M;
  __global const ACC_T *a_panels = 0;
#endif
#if PACK_B == 1
  b_panels += get_global_id(2) * b_stack;
#else
  __global const ACC_T *b_panels = 0;
#endif
#if !SPLIT
  const int range = 0, split_k = 1, k_begin = 0, k_end = K;
#endif
#if LISTED
  const int i0 = tile_listed.y, j0 = tile_listed.z;
  /* Where rows of A are divided, those of other groups can be read. */
  const int readable = LISTED == 2 || tile_listed.w < 0 ? M : M_of_all - tile_listed.w;
  if (M == 0) return;
  if (PREFETCHES && (int)get_group_id(0) + 1 < tiles_listed[0].x && tiles_listed[2 + get_group_id(0)].x != tile_listed.x) {
    __global const long *next = products + PRODUCT * (long)tiles_listed[2 + get_group_id(0)].x;
    prefetch_bytes((__global const char *)(a - own[0] + next[0]), next[TRANS_A ? 7 : 5] * next[8] * (long)sizeof(A_T));
    prefetch_bytes((__global const char *)(b - own[1] + next[1]), next[TRANS_B ? 6 : 7] * next[9] * (long)sizeof(B_T));
    prefetch_bytes((__global const char *)(out - own[3] + next[3]), next[5] * next[10] * (long)sizeof(OUT_T));
  }
#else
  const int readable = M, down = get_group_id(!rows_first), j0 = get_group_id(rows_first) * nc;
#if SPLIT
  const int range = down / tile_rows, k_begin = range * k_range, k_end = min(K, k_begin + k_range);
  const int row = down % tile_rows, i0 = first_row + row * mc;
  const long tile = (BATCH_ENTRY * tile_rows + row) * get_num_groups(rows_first) + get_group_id(rows_first);
  partial = (__global ACC_T *)((__global VEC *)partial + tile * split_k * MACRO_VECS);
  arrived += tile * (nc / NR);
#else
  const int i0 = first_row + down * mc;
#endif
#endif
  multiply_macro_tile(a, lda, b, ldb, K, mc, nc, kc, i0, j0, k_begin, k_end, first_row, last_row, readable, range, split_k,
                      a_panels, b_panels RANGES LOCAL, RESULT);
}
