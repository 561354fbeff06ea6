/* weights_sums: how mma_quantized.cl and wgmma_quantized.cl divide a work-group, and how they end. It has SLICES sub-groups for the same BM rows of
 * out, each with the products of another part of K, in fragments of mma: work-item 4 g + t has
 *   sum[(n BM / 8 + j) 4 + 2 h + c] = out(8 j + 2 t + c, 16 n + 8 h + g)
 *
 * With SPLIT a work-group stores the sums of its range of K, and the last work-group of a tile adds those of all ranges, in
 * their order; `arrived` has a counter for each tile, zero before and after.
 *
 * Macros: BM x BN, its tile; TEAMS of sub-groups that divide BN; SLICES; SPLIT; those of gemm.h.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "nvidia/ptx_halves.h"

#define DEPTH 128 /* of K, that a sub-group takes at a time */
#define STEP (SLICES * DEPTH)
#define MT (BM / 8)
#define ITEMS (32 * TEAMS * SLICES)
#define OWN_LANE ((int)get_local_id(0) % 32)
#define TEAM ((int)get_local_id(0) / 32 % TEAMS)
#define SLICE ((int)get_local_id(0) / 32 / TEAMS)
#define LINE (BN + 4) /* of sums: work-items that store at the same time meet different banks */
#define SUMS_BYTES (BM * LINE * 4)

/* Adds up the sums of all slices in local memory: row i of the tile at LINE i. A sub-group has
 * `fragments` of 16 columns, from column `first` on. */
INLINE void add_slices(
    __local float *sums, const float *sum, const int fragments, const int first)
{
  for (int slice = 0; slice < SLICES; ++slice) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (slice != SLICE) continue;
    UNROLL for (int n = 0; n < fragments; ++n)
      UNROLL for (int j = 0; j < BM / 8; ++j)
        UNROLL for (int e = 0; e < 4; ++e) {
          const int row = 8 * j + OWN_LANE % 4 * 2 + e % 2, column = first + 16 * n + e / 2 * 8 + OWN_LANE / 4;
          sums[row * LINE + column] = sum[(n * (BM / 8) + j) * 4 + e] + (slice ? sums[row * LINE + column] : 0);
        }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

#if SPLIT
/* Stores this range's sums of `rows` rows. Whether all ranges of the tile are there: then `sums` are of all. */
INLINE bool add_ranges(
    __local float *sums, const int rows, __local int *ticket, __global float *partial, __global int *arrived)
{
  __global float *own = partial + partial_of_work_group(BM * BN);
  for (int e = 4 * get_local_id(0); e < rows * BN; e += 4 * get_local_size(0))
    *(volatile __global float4 *)(own + e) = *(__local const float4 *)(sums + e / BN * LINE + e % BN);
  device_fence();
  barrier(CLK_LOCAL_MEM_FENCE);
  const int ranges = get_num_groups(1);
  volatile __global int *counter = arrived + BATCH_ENTRY * get_num_groups(0) + get_group_id(0);
  if (get_local_id(0) == 0) *ticket = atomic_inc(counter);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (*ticket != ranges - 1) return false;
  device_fence();
  if (get_local_id(0) == 0) *counter = 0;
  own -= (long)get_group_id(1) * (BM * BN);
  for (int e = 4 * get_local_id(0); e < rows * BN; e += 4 * get_local_size(0)) {
    float4 sum = 0;
    for (int range = 0; range < ranges; ++range) sum += *(volatile __global const float4 *)(own + (long)range * (BM * BN) + e);
    *(__local float4 *)(sums + e / BN * LINE + e % BN) = sum;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return true;
}
#endif

/* Stores `rows` rows of a tile, whose first element is out(m0, j0). */
INLINE void store_sums(__local const float *sums, const int rows, const int m0, const int j0, RESULT_ARGS)
{
  for (int e = get_local_id(0); e < rows * BN; e += get_local_size(0))
    STORE_RESULT(m0 + e / BN, j0 + e % BN, sums[e / BN * LINE + e % BN], RESULT);
}
