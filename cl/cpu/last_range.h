/* last_range: split-K on CPUs in one launch. Work-groups sum a range of K each, and store their sums. The one that ends
 * last of those with the same results adds the sums of all ranges, in the order of K.
 *
 *   sum i of range r  at  partial[r * sums + i],  `sums` in each range
 *
 * `arrived` has a counter for the results that are added at once, 0 before and after a launch.
 * A second launch would wake the threads once more. Macros: SPLIT 0, 1; those of gemm.h.
 */
#include "include/gemm.h"

#if !defined(SPLIT)
#error "last_range.h needs SPLIT"
#endif
#if SPLIT
#define RANGE_ARGS , __global ACC_T *partial, __global int *arrived
#define RANGES , partial, arrived

/* Whether the other ranges of the results of a counter are stored too. Fences order what is stored, counted and read;
 * PoCL's are empty (up to 7), but its atomic functions release and acquire.
 */
INLINE int ends_last(volatile __global int *counter, const int ranges)
{
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  const int before = atomic_inc(counter);
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  if (before != ranges - 1) return 0;
  *counter = 0;
  return 1;
}

INLINE ACC_T sum_of_ranges(__global const ACC_T *partial, const long sums)
{
  ACC_T sum = ACC_ZERO;
  for (int range = 0; range < (int)get_num_groups(1); ++range) sum = ADD(sum, partial[range * sums]);
  return sum;
}
#else
#define RANGE_ARGS
#define RANGES
#endif
