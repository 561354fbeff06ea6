/* shares: out = the sum of the shares that wgmma.cl left in `partial`, for the tiles that it cut.
 *
 *   out(i, j) = epilogue(team 0 (i, j) + team 1 (i, j) + ..)
 *   team t (i, j) = share t (i, j) + share t + TEAMS (i, j) + share t + 2 TEAMS (i, j) + ..
 *
 * in this order, in every call. Nothing but latency decides how long that takes, so that a work-item asks for
 * all of its shares, at most EACH, before it adds the first, and teams share the shares.
 *
 * 128 work-items are a team and stand in for one quartet and four of its accumulators (shares.h): work-item
 * 32 s + 4 g + t of a team adds those of two rows (fragment_rows.h), columns 8 j + 2 t and 8 j + 2 t + 1.
 * Group number: (cut tile, quartet, j), the last fastest.
 *
 * Macros: TEAMS, at least shares / EACH; EACH; CHUNK 4 (chunk.h); those of the headers.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/gemm.h"
#include "include/chunk.h"
#include "nvidia/units.h"
#include "nvidia/fragment_rows.h"
#include "nvidia/shares.h"

#if !defined(TEAMS) || !defined(EACH)
#error "shares.cl needs TEAMS EACH"
#endif

/* What this team's shares come to; `slots` are those of share 0, `step` accumulators before those of share 1. */
INLINE chunk_t sum_of_team(__global const ACC_T *slots, const long step, const int team, const int shares)
{
  chunk_t held[EACH];
  UNROLL for (int n = 0; n < EACH; ++n) {
    const int share = team + n * TEAMS;
    held[n] = share < shares ? *(__global const chunk_t *)(slots + share * step) : (chunk_t)(0);
  }
  chunk_t sum = held[0];
  UNROLL for (int n = 1; n < EACH; ++n) sum += held[n];
  return sum;
}

__kernel WORK_GROUP(128 * TEAMS, 1, 1) void matmul_shares(
    GEMM_ARGS, __global const ACC_T *partial, const int whole, const int shares, const int stack)
{
  __local chunk_t sums[128 * TEAMS];
  KEEP_STACK;
  GEMM_BEGIN;
  const work_t work = work_of(M, N, K, stack, whole, shares);
  const int w = get_local_id(0) % 128, team = get_local_id(0) / 128;
  const int quad = get_group_id(0) % (ACCS / 4);
  const int owner = get_group_id(0) / (ACCS / 4) % OWNERS;
  const int tile = get_group_id(0) / (ACCS / 4) / OWNERS;
  const long slot = slot_at(BATCH_ENTRY, 0, tile, owner, work);
  const long step = slot_at(BATCH_ENTRY, 1, tile, owner, work) - slot;
  chunk_t sum = sum_of_team(partial + slot + 4 * (128 * quad + w), step, team, shares);
  sums[128 * team + w] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (team > 0) return;
  UNROLL for (int t = 1; t < TEAMS; ++t) sum += sums[128 * t + w];
  ACC_T acc[4];
  SPREAD(acc, sum);
  const unit_t unit = unit_at(whole + tile, work);
  MOVE_IN_STACK(unit.layer);
  const int fragment = owner + quad / (WGMMA_ACC / 4);
  const int row = unit.origin.s0 + 64 * fragment + fragment_row(w);
  const int column = unit.origin.s1 + quad % (WGMMA_ACC / 4) * 8 + w % 4 * 2;
  UNROLL for (int e = 0; e < 4; ++e) {
    const int i = row + e / 2 * ROW_STEP, j = column + e % 2;
    store_result_at(OUT_AT(i, j), i, j, acc[e], RESULT);
  }
}
