/* thin_dot: out(q, x) = sum_k Y(q, k) X(k, x) with k the contiguous axis of X.
 *
 *            k    LANES * VEC
 *          +---------+------+      LANES work-items walk LINES lines of X side by side, VEC elements at a
 *     X    |l0 l0 l0 |l0    | x    time; each line's LANES sums are added through local memory at the end.
 *          |l1 l1 l1 |l1    |
 *          +---------+------+
 *
 * Macros: LANES (a power of two), LINES a work-item, TEAMS of LANES in a work-group; those of thin.h.
 * Work-group (tile, share): lines from tile * TEAMS * LINES, K from share * k_share, a multiple of VEC.
 */
#if !defined(LANES) || !defined(LINES) || !defined(TEAMS)
#error "thin_dot.cl needs LANES LINES TEAMS"
#endif

INLINE ACC_T sum_of_lanes(ACC_T value, __local ACC_T *scratch, const int lane, const int team)
{
  for (int half_of = LANES / 2; half_of > 0; half_of /= 2) {
    if (lane >= half_of && lane < 2 * half_of) scratch[team * LANES + lane] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < half_of) value = value + scratch[team * LANES + lane + half_of];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  return value;
}

__kernel __attribute__((reqd_work_group_size(LANES * TEAMS, 1, 1))) void thin_dot(
    GEMM_ARGS, const int first_tile, const int k_share, __global ACC_T *partial)
{
  __local ACC_T scratch[LANES * TEAMS];
  GEMM_BEGIN;
  const int lane = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
  const int x0 = (first_tile + get_group_id(0)) * TILE_X;
  const int k0 = SPLIT ? get_group_id(1) * k_share : 0;
  const int k_end = SPLIT ? min(K, k0 + k_share) : K;
  const long step_x = X_STEP_X, y_step_k = Y_STEP_K, step_q = Y_STEP_Q;

  ACC_T acc[LINES][Q];
  UNROLL for (int l = 0; l < LINES; ++l) UNROLL for (int q = 0; q < Q; ++q) acc[l][q] = ACC_ZERO;
  for (int k = k0 + lane * VEC; k < k_end; k += LANES * VEC) {
    ACC_T x[LINES][VEC];
    UNROLL for (int l = 0; l < LINES; ++l)
      READ_X(x[l], X_BASE + min(x0 + l * TEAMS + team, X_EXTENT - 1) * step_x + k);
    UNROLL for (int q = 0; q < Q; ++q) {
      UNROLL for (int e = 0; e < VEC; ++e) {
        const ACC_T y = LOAD_Y(Y_BASE, min(q, Y_EXTENT - 1) * step_q + (k + e) * y_step_k);
        UNROLL for (int l = 0; l < LINES; ++l) acc[l][q] = MAC(acc[l][q], x[l][e], y);
      }
    }
  }
  UNROLL for (int l = 0; l < LINES; ++l) {
    UNROLL for (int q = 0; q < Q; ++q) {
      const ACC_T sum = sum_of_lanes(acc[l][q], scratch, lane, team);
      if (lane == 0 && q < Y_EXTENT) STORE_SUM(q, x0 + l * TEAMS + team, sum);
    }
  }
}
