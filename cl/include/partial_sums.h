/* partial_sums: where split-K on GPUs keeps its sums, which one launch stores and the next one adds.
 *
 *   for each product of the stack, for each tile (split_k.cl), for each range of K:  `size` sums
 */
#include "include/gemm.h"

/* The first sum of block `block` of `blocks`, in group `group` of `groups`, for this work-item's product. */
INLINE long partial_at(const long group, const long groups, const long block, const long blocks, const int size)
{
  return ((BATCH_ENTRY * groups + group) * blocks + block) * size;
}

/* The same of a work-group's tile and range of K, numbered by dimensions 0 and 1 of the NDRange. */
INLINE long partial_of_work_group(const int size)
{
  return partial_at(get_group_id(0), get_num_groups(0), get_group_id(1), get_num_groups(1), size);
}
