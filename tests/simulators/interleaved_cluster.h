/* Replaces what cl/nvidia/ptx_map.h has of clusters where interleaved.py runs a kernel. Copies land in every member at once. */
#include "nvidia/operands.h"
INLINE int member(void) { return get_group_id(0) % CLUSTER; }
INLINE int first_piece(void) { return get_group_id(0) / CLUSTER; }
INLINE int piece_step(void) { return get_num_groups(0) / CLUSTER; }
INLINE void arrive_at_members(const uint bar)
{
  const uint to = get_local_id(0) % 32;
  if (to < CLUSTER) mbarrier_arrive(emu_of_member(bar, to));
}
#define meet_members() emu_meet_members()
INLINE void copy_box_to(
    const int members, const uint to, __global const ulong *map, const int x, const int y, const int layer, const uint bar)
{
  for (int m = 0; m < members; ++m) {
    const int which = members == 1 ? member() : m;
    copy_box(emu_of_member(to, which), map, x, y, layer, emu_of_member(bar, which));
  }
}
