/* rows: few rows of A by quantised weights, for GPUs. Each weight is read once for ROWS rows, and becomes a number in
 * registers.
 *
 *          k   LANES runs of 32 weights
 *        +------+------+------+----        A team of LANES work-items reads COLUMNS rows of B, a run a work-item. The
 *   B    |  l0  |  l1  |  l2  | ..  j      TEAMS of a work-group share ROWS x (32 LANES) numbers of A in local memory.
 *        |  l0  |  l1  |  l2  | ..         At the end the sums of a team's work-items are added there.
 *        +------+------+------+----
 *
 * Macros: LANES, TEAMS; SPLIT, 1: partial sums go to `partial`, and split_k.cl adds them; those of tile_order.h, of gemm.h
 * and of the format, whose header comes before.
 * Work-group (tile, range): BM x BN of out, K from range * k_range, a multiple of 32.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "include/tile_order.h"
#include "quantized/rounded.h"

#if !defined(LANES) || !defined(TEAMS) || !defined(SPLIT)
#error "rows.cl needs LANES TEAMS SPLIT"
#endif
#define ROWS BM
#define COLUMNS (BN / TEAMS)
#define RUN 32
#define ITEMS (LANES * TEAMS)
#define STEP (LANES * RUN)
#define QUADS (RUN / 4 + 1) /* of a run in local memory: work-items read at the same time from different banks */
#define LINE (ITEMS + 1)

/* x[r] = numbers k up to k + STEP of row m0 + r of A; zeros outside of it. */
INLINE void fetch_rows(
    __local float4 (*x)[LANES * QUADS], __global const A_T *a, const long lda, const int m0, const int k,
    const int M, const int k_end)
{
  UNROLL for (int r = 0; r < ROWS; ++r)
    for (int i = get_local_id(0); i < STEP; i += ITEMS)
      ((__local float *)x[r])[i + i / RUN * 4] = GUARDED_A(a, m0 + r, k + i, lda, M, k_end);
}

INLINE float dot_run(float sum, const float4 *w, __local const float4 *x)
{
  UNROLL for (int q = 0; q < RUN / 4; ++q) {
    const float4 v = x[q], u = w[q];
    sum = MAC(MAC(MAC(MAC(sum, v.x, u.x), v.y, u.y), v.z, u.z), v.w, u.w);
  }
  return sum;
}

/* Adds the sums of a team's work-items for row r of the tile at (m0, j0), and stores them. */
INLINE void put_row(
    const int r, const int m0, const int j0, const float *acc, __local float *scratch, __global float *partial,
    RESULT_ARGS)
{
  const int item = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int c = 0; c < COLUMNS; ++c) scratch[c * LINE + item] = acc[c];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int t = item; t < BN; t += ITEMS) {
    const int team = t / COLUMNS, column = t - team * COLUMNS;
    float sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += scratch[column * LINE + team * LANES + lane];
#if SPLIT
    partial[partial_of_work_group(ROWS * BN) + r * BN + t] = sum;
#else
    STORE_RESULT(m0 + r, j0 + t, sum, RESULT);
#endif
  }
}

__kernel WORK_GROUP(ITEMS, 1, 1) void quantized_rows(GEMM_ARGS, const int k_range, __global float *partial)
{
  __local float4 x[ROWS][LANES * QUADS];
  __local float scratch[COLUMNS * LINE];
  GEMM_BEGIN;
  const int lane = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
  const int2 tile = tile_at(get_group_id(0), (M + ROWS - 1) / ROWS, (N + BN - 1) / BN);
  const int m0 = tile.s0 * ROWS, j0 = tile.s1 * BN;
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0, k_end = SPLIT ? min(K, k0 + k_range) : K;
  float acc[ROWS][COLUMNS];
  UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int c = 0; c < COLUMNS; ++c) acc[r][c] = 0;
  for (int k = k0; k < k_end; k += STEP) {
    barrier(CLK_LOCAL_MEM_FENCE);
    fetch_rows(x, a, lda, m0, k, M, k_end);
    barrier(CLK_LOCAL_MEM_FENCE);
    const int own = k + lane * RUN;
    if (own < k_end)
      UNROLL for (int c = 0; c < COLUMNS; ++c) {
        float16 w[2];
        weights32(b + min(j0 + team * COLUMNS + c, N - 1) * ldb, own, K, w, w + 1);
        w[0] = ROUNDED(w[0]), w[1] = ROUNDED(w[1]);
        UNROLL for (int r = 0; r < ROWS; ++r) acc[r][c] = dot_run(acc[r][c], (const float4 *)w, x[r] + lane * QUADS);
      }
  }
  UNROLL for (int r = 0; r < ROWS; ++r) put_row(r, m0, j0, acc[r], scratch, partial, RESULT);
}
