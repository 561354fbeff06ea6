/* slices: how mma_quantized.cl, wgmma_quantized.cl and wgmma_fragments.cl divide a work-group, and how its tile of out ends.
 *
 * A work-group has SLICES sub-groups for the same BM rows of out, each with the products of another part of K, in fragments of
 * mma: work-item 4 g + t has
 *   sum[(n BM / 8 + j) 4 + 2 h + c] = out(8 j + 2 t + c, 16 n + 8 h + g)
 *
 * Each slice leaves its sums in a plane of local memory, and who stores a result adds them up. With SPLIT a work-group stores the
 * sums of its range of K, and the last work-group of a tile adds those of all ranges, in their order; `arrived` has a counter for
 * each tile, zero before and after.
 *
 * Macros: OUT_VECTOR (fragment.h); BM x BN, a work-group's tile; TEAMS of sub-groups that divide BN; SLICES; SPLIT; ELEMENT
 * (operands.h); those of gemm.h.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "nvidia/fragment.h"
#include "nvidia/operands.h"
#include "nvidia/ptx.h"

#if !defined(BM) || !defined(BN) || !defined(TEAMS) || !defined(SLICES) || !defined(SPLIT)
#error "slices.h needs BM BN TEAMS SLICES SPLIT"
#endif
#ifndef FEEDERS
#define FEEDERS 0 /* work-items behind those of the slices */
#endif
#define DEPTH 128 /* of K, that a sub-group takes at a time */
#define STEP (SLICES * DEPTH)
#define MT (BM / 8)
#define ITEMS (32 * TEAMS * SLICES)
#define OWN_LANE ((int)get_local_id(0) % 32)
#define TEAM ((int)get_local_id(0) / 32 % TEAMS)
#define SLICE ((int)get_local_id(0) / 32 / TEAMS)
#define LINE (BN + 4) /* of sums: work-items that store at the same time meet different banks */
#define SUMS_BYTES (SLICES * BM * LINE * 4)

/* Leaves the sums of a slice in its plane of local memory: row i of the tile at LINE i. A sub-group has `fragments` of 16
 * columns, from column `first` on. */
INLINE void leave_slice(__local float *sums, const float *sum, const int fragments, const int first)
{
  barrier(CLK_LOCAL_MEM_FENCE);
  sums += SLICE * (BM * LINE) + OWN_LANE % 4 * 2 * LINE + first + OWN_LANE / 4;
  UNROLL for (int n = 0; n < fragments; ++n)
    UNROLL for (int j = 0; j < BM / 8; ++j)
      UNROLL for (int e = 0; e < 4; ++e)
        if (!FEEDERS || SLICE < SLICES) sums[(8 * j + e % 2) * LINE + 16 * n + e / 2 * 8] = sum[(n * (BM / 8) + j) * 4 + e];
  barrier(CLK_LOCAL_MEM_FENCE);
}

/* Four neighbours of a tile, e a multiple of 4: the sum of all slices. */
INLINE float4 slices_at(__local const float *sums, const int e)
{
  float4 sum = *(__local const float4 *)(sums + e / BN * LINE + e % BN);
  UNROLL for (int slice = 1; slice < SLICES; ++slice)
    sum += *(__local const float4 *)(sums + slice * (BM * LINE) + e / BN * LINE + e % BN);
  return sum;
}

#if SPLIT
/* The same: the sum of all ranges. */
INLINE float4 ranges_at(__global const float *partial, const int e)
{
  float4 sum = 0;
  for (int range = 0; range < (int)get_num_groups(1); ++range)
    sum += *(volatile __global const float4 *)(partial + (long)range * (BM * BN) + e);
  return sum;
}

/* Stores this range's sums of `rows` rows. Whether all ranges of the tile are there. */
INLINE bool leave_range(
    __local const float *sums, const int rows, __local int *ticket, __global float *partial, __global int *arrived)
{
  partial += (long)get_group_id(1) * (BM * BN);
  for (int e = 4 * get_local_id(0); e < rows * BN; e += 4 * get_local_size(0))
    *(volatile __global float4 *)(partial + e) = slices_at(sums, e);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  volatile __global int *counter = arrived + BATCH_ENTRY * get_num_groups(0) + get_group_id(0);
  if (get_local_id(0) == 0) { /* its fences order what all work-items have stored, and what they read */
    device_fence();
    *ticket = atomic_inc(counter);
    device_fence();
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (*ticket != (int)get_num_groups(1) - 1) return false;
  if (get_local_id(0) == 0) *counter = 0;
  return true;
}
#define SUMS_AT(e) ranges_at(partial, e)
#else
#define SUMS_AT(e) slices_at(sums, e)
#endif

/* Stores `rows` rows of a tile, whose first element is out(m0, j0), from the slices' sums; with SPLIT once all ranges are there.
 * Without it `partial`, `arrived` and `ticket` are not used. */
INLINE void finish_tile(
    __local const float *sums, const int rows, const int m0, const int j0, __global float *partial, __global int *arrived,
    __local int *ticket, RESULT_ARGS)
{
#if SPLIT
  partial += partial_at(get_group_id(0), get_num_groups(0), 0, get_num_groups(1), BM * BN);
  if (!leave_range(sums, rows, ticket, partial, arrived)) return;
#endif
#if WHOLE_CHUNKS
  for (int e = 8 * get_local_id(0); e < rows * BN; e += 8 * get_local_size(0)) {
    const int i = m0 + e / BN, j = j0 + e % BN;
    const int other = get_local_id(0) / 4 % 2 * 4; /* so that eight work-items meet different banks */
    const float4 one = SUMS_AT(e + other), two = SUMS_AT(e + 4 - other), low = other ? two : one, high = other ? one : two;
    const uint4 words = (uint4)(
        packed_results(i, j, low.s0, i, j + 1, low.s1, RESULT), packed_results(i, j + 2, low.s2, i, j + 3, low.s3, RESULT),
        packed_results(i, j + 4, high.s0, i, j + 5, high.s1, RESULT), packed_results(i, j + 6, high.s2, i, j + 7, high.s3, RESULT));
    store_words(out + (long)i * ldo, j, N, words);
  }
#else
  for (int e = get_local_id(0); e < rows * BN; e += get_local_size(0)) {
    const float4 four = SUMS_AT(e / 4 * 4);
    const float2 two = e % 4 < 2 ? four.lo : four.hi;
    STORE_RESULT(m0 + e / BN, j0 + e % BN, e % 2 ? two.s1 : two.s0, RESULT);
  }
#endif
}
