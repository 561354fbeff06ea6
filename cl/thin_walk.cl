/* thin_walk: out(q, x) = sum_k Y(q, k) X(k, x) with x the contiguous axis of X.
 *
 *            x0    LANES * VEC
 *          +------+---------+      Each work-item owns VEC neighbouring columns of X for one K slice:
 *     X    |      |s0 s0 s0 |      work-item (lane, slice) reads rows slice, slice + SLICES, ..., AHEAD of
 *          |      |s1 s1 s1 |      them in flight; the slices are summed through local memory at the end.
 *          |      |s0 s0 s0 |
 *          +------+---------+
 *
 * Macros: LANES, SLICES (a power of two), AHEAD; those of thin.h. The work-group is LANES * SLICES.
 * Work-group (tile, share): columns from tile * LANES * VEC, K from share * k_share.
 */
#if !defined(LANES) || !defined(SLICES) || !defined(AHEAD)
#error "thin_walk.cl needs LANES SLICES AHEAD"
#endif

INLINE void multiply_column(
    ACC_T (*acc)[VEC], const ACC_T *column, __global const Y_T *y, const long step_q, const int rows)
{
  UNROLL for (int q = 0; q < Q; ++q) {
    const ACC_T value = LOAD_Y(y, min(q, rows - 1) * step_q);
    UNROLL for (int e = 0; e < VEC; ++e) acc[q][e] = MAC(acc[q][e], value, column[e]);
  }
}

/* The sum over slices of one value a work-item, for slice 0. */
INLINE ACC_T sum_of_slices(ACC_T value, __local ACC_T *scratch, const int lane, const int slice)
{
  for (int half_of = SLICES / 2; half_of > 0; half_of /= 2) {
    if (slice >= half_of && slice < 2 * half_of) scratch[(slice - half_of) * LANES + lane] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice < half_of) value = value + scratch[slice * LANES + lane];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  return value;
}

__kernel __attribute__((reqd_work_group_size(LANES * SLICES, 1, 1))) void thin_walk(
    GEMM_ARGS, const int first_tile, const int k_share, __global ACC_T *partial)
{
  __local ACC_T scratch[LANES * SLICES];
  GEMM_BEGIN;
  const int lane = get_local_id(0) % LANES, slice = get_local_id(0) / LANES;
  const int x0 = (first_tile + get_group_id(0)) * TILE_X;
  const int x = x0 + lane * VEC;
  const int k0 = SPLIT ? get_group_id(1) * k_share : 0;
  const int k_end = SPLIT ? min(K, k0 + k_share) : K;
  const long step_k = X_STEP_K, y_step_k = Y_STEP_K, step_q = Y_STEP_Q;
  __global const X_T *column = X_BASE + min(x, X_EXTENT - VEC);
  __global const Y_T *y = Y_BASE;

  ACC_T acc[Q][VEC];
  UNROLL for (int q = 0; q < Q; ++q) UNROLL for (int e = 0; e < VEC; ++e) acc[q][e] = ACC_ZERO;
  int k = k0 + slice;
  for (; k + (AHEAD - 1) * SLICES < k_end; k += AHEAD * SLICES) {
    ACC_T ahead[AHEAD][VEC];
    UNROLL for (int u = 0; u < AHEAD; ++u) READ_X(ahead[u], column + (k + u * SLICES) * step_k);
    UNROLL for (int u = 0; u < AHEAD; ++u)
      multiply_column(acc, ahead[u], y + (k + u * SLICES) * y_step_k, step_q, Y_EXTENT);
  }
  for (; k < k_end; k += SLICES) {
    ACC_T one[VEC];
    READ_X(one, column + k * step_k);
    multiply_column(acc, one, y + k * y_step_k, step_q, Y_EXTENT);
  }
  UNROLL for (int q = 0; q < Q; ++q) {
    UNROLL for (int e = 0; e < VEC; ++e) {
      const ACC_T sum = sum_of_slices(acc[q][e], scratch, lane, slice);
      if (slice == 0 && q < Y_EXTENT) STORE_SUM(q, x + e, sum);
    }
  }
}
