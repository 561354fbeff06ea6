/* ptx_map: copies of whole tiles by the copy engine (sm_90), as inline PTX.
 *
 * A tensor map in global memory describes the matrix. One work-item starts the copy of a box of it. A barrier in local
 * memory (an mbarrier) counts the bytes that have landed.
 *
 * A box is 128 bytes wide. Row r of it lands at byte 128 r, its 16-byte chunk c at chunk c ^ (r % 8). So the
 * eight chunks of a row, and the eight of a column of an atom, lie in different memory banks:
 *
 *     row 0 | 0 1 2 3 4 5 6 7 |        row 2 | 2 3 0 1 6 7 4 5 |       eight rows are an atom of
 *     row 1 | 1 0 3 2 5 4 7 6 |        row 3 | 3 2 1 0 7 6 5 4 |       1,024 bytes, aligned to 1,024
 *
 * Or it is 64 bytes wide: row r lands at byte 64 r, chunk c at chunk c ^ (r / 2 % 4). An atom has 512 bytes.
 *
 * Macros: ELEMENT (operands.h); CLUSTER: work-groups of a cluster, 1 (no clusters) or 2.
 * Technique: tensor maps, their swizzle modes and mbarriers as in NVIDIA's PTX manual.
 */
#include "nvidia/operands.h"
#include "nvidia/ptx.h"

#ifndef CLUSTER
#error "ptx_map.h needs CLUSTER"
#endif

/* A barrier. Its phase completes after `arrivals` arrivals and all the bytes that they announced. */
INLINE void mbarrier_init(const uint bar, const uint arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(arrivals) : "memory");
}

/* Makes the barriers visible to the copy engine. Stands after the last mbarrier_init. */
INLINE void mbarrier_fence(void)
{
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

/* Arrives. */
INLINE void mbarrier_arrive(const uint bar)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}

/* Arrives and announces bytes. */
INLINE void mbarrier_expect(const uint bar, const uint bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(bar), "r"(bytes) : "memory");
}

/* Waits until the phase of this parity has ended. A new barrier counts as if a phase of parity 1 had ended. */
INLINE void mbarrier_wait(const uint bar, const uint parity)
{
  uint done;
  do {
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  } while (!done);
}

/* Starts the copy of the box whose first element is column x of row y of a layer. Writes zeros for what is outside the
 * matrix. The bytes of the whole box count at `bar`. */
INLINE void copy_box(
    const uint to, __global const ulong *map, const int x, const int y, const int layer, const uint bar)
{
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3, %4}], [%5];"
               :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(layer), "r"(bar) : "memory");
}

/* Starts the copy of neighbouring bytes that are not read again soon: the cache gives them up first. Both ends and the length are
 * multiples of 16. They count at `bar`. */
INLINE void copy_bytes(const uint to, __global const uchar *from, const uint bytes, const uint bar)
{
  ulong first;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
               :: "r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(first) : "memory");
}

#define MAP_REPLACE "//@sm_90a tensormap.replace.tile."
#define MAP_CONSTANT(map, field, value) \
  asm volatile(MAP_REPLACE field ".shared::cta.b1024.b32 [%0], " value ";" :: "r"(map) : "memory")
#define MAP_32(map, field, value)                                         \
  asm volatile(MAP_REPLACE field ", %1;" :: "r"(map), "r"(value) : "memory")
#define MAP_64(map, field, value)                                         \
  asm volatile(MAP_REPLACE field ", %1;" :: "r"(map), "l"(value) : "memory")

/* What a tensor map describes: `layers` matrices of rows x columns elements. Rows are `pitch` bytes apart, matrices
 * `layer_pitch` bytes. A box has box_layers x box_rows x box_columns elements and is 128 or 64 bytes wide. */
typedef struct {
  __global const uchar *from;
  int columns, rows, layers;
  long pitch, layer_pitch;
  int box_columns, box_rows, box_layers;
} map_t;

/* The map's code of the element type: 8 bits, 16 bits, float32 rounded to TF32, float64. */
#if ELEMENT_BYTES == 1
#define MAP_TYPE 0
#elif ELEMENT_BYTES == 2
#define MAP_TYPE 1
#elif ELEMENT_BYTES == 4
#define MAP_TYPE 11
#else
#define MAP_TYPE 9
#endif

/* Writes a map. All 32 work-items of a sub-group call this. `scratch`: 128 bytes of local memory, aligned to 128.
 * box_bytes: the width of a box, a constant. */
INLINE void write_map(__global ulong *map, __local uint *scratch, const map_t of, const int box_bytes)
{
  const uint draft = local_address(scratch);
  scratch[get_local_id(0) % 32] = 0;
  sub_group_barrier();
  if (get_local_id(0) % 32 == 0) {
    MAP_64(draft, "global_address.shared::cta.b1024.b64 [%0]", of.from);
    MAP_CONSTANT(draft, "rank", "2"); /* three dimensions */
    MAP_32(draft, "box_dim.shared::cta.b1024.b32 [%0], 0", of.box_columns);
    MAP_32(draft, "box_dim.shared::cta.b1024.b32 [%0], 1", of.box_rows);
    MAP_32(draft, "box_dim.shared::cta.b1024.b32 [%0], 2", of.box_layers);
    MAP_32(draft, "global_dim.shared::cta.b1024.b32 [%0], 0", of.columns);
    MAP_32(draft, "global_dim.shared::cta.b1024.b32 [%0], 1", of.rows);
    MAP_32(draft, "global_dim.shared::cta.b1024.b32 [%0], 2", of.layers);
    MAP_64(draft, "global_stride.shared::cta.b1024.b64 [%0], 0", of.pitch);
    MAP_64(draft, "global_stride.shared::cta.b1024.b64 [%0], 1", of.layer_pitch);
    MAP_CONSTANT(draft, "element_stride", "0, 1");
    MAP_CONSTANT(draft, "element_stride", "1, 1");
    MAP_CONSTANT(draft, "element_stride", "2, 1");
    MAP_CONSTANT(draft, "elemtype", TEXT(MAP_TYPE));
    MAP_CONSTANT(draft, "interleave_layout", "0");
    if (box_bytes == 128) MAP_CONSTANT(draft, "swizzle_mode", "3");
    else MAP_CONSTANT(draft, "swizzle_mode", "2");
    MAP_CONSTANT(draft, "fill_mode", "0");
  }
  asm volatile("bar.warp.sync 0xffffffff;\n\t"
               "//@sm_90a tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic"
               ".release.gpu.sync.aligned [%0], [%1], 128;"
               :: "l"(map), "r"(draft) : "memory");
}

/* Makes a map in global memory visible to the copy engine. Every work-item that starts copies calls this before, after
 * the map was written: one call for the work-group is not enough (INVALID_COMMAND_QUEUE on an H200, driver 580). */
INLINE void map_acquire(__global const ulong *map)
{
  asm volatile("//@sm_90a fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
}

/* Begins to fetch the map of the last call, which usually is this call's. The sub-group that will start copies from it
 * calls this. The fence takes 0.2 us (H200). */
INLINE void fetch_map(__global const ulong *map)
{
  if (get_local_id(0) % 32) return;
  map_acquire(map);
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

/* A slot keeps the maps of two operands from call to call, and what each of them describes. Writing a map costs
 * 1.5 us (H200), so it is written again only if that has changed. New slots are zero.
 *
 *     ulongs 0 .. 15: map 0    16 .. 31: map 1    32 .. 36: what map 0 describes    40 .. 44: the same of map 1
 */
#define MAP_SLOT 48
#define ABOUT 5 /* ulongs that say what a map describes */
/* This work-item's word of what map `n` of a slot describes. Kernels read it first of all, since the copies wait for
 * it. */
INLINE ulong word_about(__global const ulong *slot, const int n)
{
  const int lane = get_local_id(0) % 32;
  return lane < ABOUT ? slot[32 + 8 * n + lane] : 0;
}

/* Makes map `n` of a slot describe `of`. If that means writing it, also acquires it. Called as write_map is. `about`:
 * word_about's. */
INLINE void keep_map(
    __global ulong *slot, const int n, __local uint *scratch, const map_t of, const int box_bytes, const ulong about)
{
  const int lane = get_local_id(0) % 32;
  const ulong wanted[ABOUT] = {
      (ulong)of.from, (ulong)of.rows << 32 | (uint)of.columns, (ulong)of.pitch, (ulong)of.layer_pitch,
      (ulong)of.layers << 32 | ((uint)MAP_TYPE << 28 | of.box_layers << 20 | of.box_rows << 10 | of.box_columns)};
  ulong mine = 0;
  UNROLL for (int i = 0; i < ABOUT; ++i) mine = lane == i ? wanted[i] : mine;
  if (all_items(about == mine)) return;
  write_map(slot + 16 * n, scratch, of, box_bytes);
  map_acquire(slot + 16 * n);
  if (lane < ABOUT) slot[32 + 8 * n + lane] = mine;
}

/* --- Clusters: neighbouring work-groups that run at the same time and reach each other's local memory.
 *
 * CUDA calls them a cluster; launches of OpenCL's have none. Here CLUSTER work-groups along dimension 0, each a *member*,
 * compute tiles below each other. They need the same tile of B, so each member copies a part of it to all (multicast):
 *
 *     member 0 | A 0 |   B: first half from member 0,     the copy engine reads each line of B once for all members
 *     member 1 | A 1 |      second half from member 1
 *
 * Technique: clusters and multicast as in NVIDIA's PTX manual; CUTLASS's kernels for sm_90 share operands in this way.
 *
 * This work-group's number in its cluster. The members of cluster c of C compute pieces c, c + C, .. (work_pieces.h). */
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

/* copy_box to the same place of `members`, a constant: 1, this one; CLUSTER, all of them. The bytes count at
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
