/* split_k: the second launch of split-K on GPUs. It adds the partial sums of each tile and stores them.
 *
 *   out(i, j) = epilogue(team 0 (i, j) + team 1 (i, j) + ..)
 *   team t (i, j) = sums over range t of K + over range t + TEAMS + over range t + 2 TEAMS + ..
 *
 * The order of additions is always this one, so every call gives the same bits.
 *
 * `partial` holds the sums of tiles from first_tile on (partial_sums.h). A work-item adds CHUNK neighbours from all ranges
 * of its team. With many ranges, memory latency limits the speed. So a work-item has EACH loads in flight, and TEAMS teams
 * divide the ranges.
 *
 * Macros: BM BN GROUP (tile_order.h); TEAM_ITEMS, work-items of a team, divides BM BN / CHUNK; TEAMS EACH, 1 or more;
 * CHUNK (chunk.h); FRAGMENTS 0: the sums of a tile lie row by row, 1: as wgmma.cl leaves them (fragment_rows.h; CHUNK 4).
 */
#include "include/gemm.h"
#include "include/chunk.h"
#include "include/partial_sums.h"
#include "include/tile_order.h"

#if !defined(TEAM_ITEMS) || !defined(TEAMS) || !defined(EACH) || !defined(FRAGMENTS)
#error "split_k.cl needs TEAM_ITEMS TEAMS EACH FRAGMENTS"
#endif
#if FRAGMENTS
#include "nvidia/fragment_rows.h"
#else
#define ROW_IN_TILE(chunk, e) (((chunk) * CHUNK + (e)) / BN)
#define COLUMN_IN_TILE(chunk, e) (((chunk) * CHUNK + (e)) % BN)
#define OUT_AT(i, j, ldo) ((long)(i) * (ldo) + (j))
#endif
#define TEAM_GROUPS (BM * BN / CHUNK / TEAM_ITEMS) /* work-groups a tile */

/* The sum of one chunk over this team's ranges. `range_0` points to the chunk in range 0. */
INLINE chunk_t sum_of_team(__global const ACC_T *range_0, const int team, const int split_k)
{
  chunk_t sum = (chunk_t)(0);
  for (int first = team; first < split_k; first += TEAMS * EACH) {
    chunk_t held[EACH];
    UNROLL for (int n = 0; n < EACH; ++n) {
      const int range = first + n * TEAMS;
      held[n] = range < split_k ? *(__global const chunk_t *)(range_0 + (long)range * (BM * BN)) : (chunk_t)(0);
    }
    sum = first == team ? held[0] : sum + held[0];
    UNROLL for (int n = 1; n < EACH; ++n) sum += held[n];
  }
  return sum;
}

/* The tiles of `stack` products are numbered consecutively. If `stack` is 1, dimension 2 is the product. */
__kernel WORK_GROUP(TEAM_ITEMS * TEAMS, 1, 1) void add_partial_sums(
    GEMM_ARGS, __global const ACC_T *partial, const int first_tile, const int split_k, const int stack)
{
#if TEAMS > 1
  __local chunk_t sums[TEAM_ITEMS * TEAMS];
#endif
  if (GATE_SHUT) return;
  const int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN;
  const int item = get_local_id(0) % TEAM_ITEMS, team = get_local_id(0) / TEAM_ITEMS;
  const int number = get_group_id(0) / TEAM_GROUPS; /* of the tile, counted from first_tile */
  const int chunk = get_group_id(0) % TEAM_GROUPS * TEAM_ITEMS + item;
  const int layer = (first_tile + number) / (tiles_m * tiles_n);
  const int tile = first_tile + number - layer * tiles_m * tiles_n;
  partial += partial_at(number, tiles_m * tiles_n * stack - first_tile, 0, split_k, BM * BN);
  chunk_t sum = sum_of_team(partial + CHUNK * chunk, team, split_k);
#if TEAMS > 1
  sums[get_local_id(0)] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (team > 0) return;
  UNROLL for (int t = 1; t < TEAMS; ++t) sum += sums[TEAM_ITEMS * t + item];
#endif
  EXTRAS_BEGIN(BATCH_OFFSET_OF(batch_offsets, BATCH_ENTRY + layer, 2), 0);
  out += out_offset + BATCH_OFFSET_OF(batch_offsets, BATCH_ENTRY + layer, 3);
  ACC_T acc[CHUNK];
  SPREAD(acc, sum);
  const int2 origin = tile_at(tile, tiles_m, tiles_n) * (int2)(BM, BN);
  UNROLL for (int e = 0; e < CHUNK; ++e) {
    const int i = origin.s0 + ROW_IN_TILE(chunk, e), j = origin.s1 + COLUMN_IN_TILE(chunk, e);
    STORE_RESULT_AT(OUT_AT(i, j, ldo), i, j, acc[e], RESULT);
  }
}
