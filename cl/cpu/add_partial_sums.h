/* add_partial_sums: split-K on CPUs. The second launch adds the partial sums of each piece of the result (partial_sums.h). */
#include "include/partial_sums.h"
#include "cpu/vectors.h"

/* The `count` vectors of a piece, added over all ranges in the order of K. */
INLINE void add_ranges(
    VEC *sum, const int count, __global const VEC *partial, const int split_k, const int piece, const int pieces)
{
  UNROLL for (int v = 0; v < count; ++v) sum[v] = (VEC)(0);
  for (int range = 0; range < split_k; ++range) {
    __global const VEC *sums = partial + partial_at(range, split_k, piece, pieces, count);
    UNROLL for (int v = 0; v < count; ++v) sum[v] += sums[v];
  }
}
