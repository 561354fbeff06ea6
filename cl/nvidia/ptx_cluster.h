/* ptx_cluster: neighbouring work-groups that run at the same time and reach each other's local memory (sm_90), as inline PTX.
 *
 * CUDA calls them a cluster; launches of OpenCL's have none. Here CLUSTER work-groups along dimension 0, each a *member*,
 * compute tiles below each other. They need the same tile of B, so each member copies a part of it to all (multicast):
 *
 *     member 0 | A 0 |   B: first half from member 0,     the copy engine reads each line of B once for all members
 *     member 1 | A 1 |      second half from member 1
 *
 * Macros: CLUSTER: members, 1 (no clusters) or 2.
 * Technique: clusters and multicast as in NVIDIA's PTX manual; CUTLASS's kernels for sm_90 share operands in this way.
 */
#include "nvidia/ptx_map.h"

#ifndef CLUSTER
#error "ptx_cluster.h needs CLUSTER"
#endif

/* This work-group's number in its cluster. The members of cluster c of C compute pieces c, c + C, .. (work_pieces.h). */
INLINE int member(void) { return get_group_id(0) % CLUSTER; }
INLINE int first_piece(void) { return get_group_id(0) / CLUSTER; }
INLINE int piece_step(void) { return get_num_groups(0) / CLUSTER; }

/* Arrives at the barrier `bar` of every member. All work-items of a sub-group call this. With .release.cluster ptxas would
 * put a fence of the whole device before it, which takes longer than a stage (H200). */
INLINE void arrive_at_members(const uint bar)
{
  const uint to = get_local_id(0) % 32;
#if CLUSTER == 1
  if (to == 0) mbarrier_arrive(bar);
#else
  if (to < CLUSTER)
    asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" :: "r"(bar), "r"(to) : "memory");
#endif
}

/* Waits until all work-items of the cluster that have not ended are here. */
INLINE void meet_members(void)
{
#if CLUSTER > 1
  asm volatile("barrier.cluster.arrive.relaxed;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/* copy_box (ptx_map.h) to the same place of `members`, a constant: 1, this one; CLUSTER, all of them. The bytes count at
 * the barrier `bar` of each. */
INLINE void copy_box_to(
    const int members, const uint to, __global const ulong *map, const int x, const int y, const int layer, const uint bar)
{
  if (members == 1) copy_box(to, map, x, y, layer, bar);
#if CLUSTER > 1
  else
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%2, %3, %4}], [%5], %6;"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(layer), "r"(bar), "h"((ushort)((1 << CLUSTER) - 1)) : "memory");
#endif
}
