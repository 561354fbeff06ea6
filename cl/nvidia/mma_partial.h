/* mma_partial: split-K for mma and mma_double. The work-groups of dimension 1 of the NDRange divide K among them: each
 * multiplies k_range of K, a multiple of BK, and stores partial sums of its tile, row by row. split_k.cl adds them.
 *
 * Macros: SPLIT_K 1: as said. 0: a work-group multiplies all of K, and `partial` and k_range are not used.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "nvidia/mma_ring.h"

#ifndef SPLIT_K
#error "mma_partial.h needs SPLIT_K"
#endif
#define PARTIAL_ARGS __global uchar *partial, const int k_range
#if SPLIT_K
#define FIRST_K(k_range) ((int)get_group_id(1) * (k_range))
#define LAST_K(K, k_range) min(K, FIRST_K(k_range) + (k_range)) /* exclusive */

typedef struct { acc_t first, second; } ALIGNED(2 * sizeof(acc_t)) sums_t;

/* Stores the sums of the sub-group at `row` and `column` of the tile. */
INLINE void store_partial_sums(
    __global uchar *partial, const int row, const int column, acc_t sum[MT][4 * NT])
{
  const int lane = get_local_id(0) % 32;
  __global acc_t *to = (__global acc_t *)partial + partial_of_work_group(BM * BN);
  to += (row + lane / 4) * BN + column + lane % 4 * 2;
  UNROLL for (int i = 0; i < MT; ++i)
    UNROLL for (int h = 0; h < 2; ++h)
      UNROLL for (int j = 0; j < NT; ++j)
        *(__global sums_t *)(to + (16 * i + 8 * h) * BN + 8 * j) =
            (sums_t){sum[i][4 * j + 2 * h], sum[i][4 * j + 2 * h + 1]};
}
#else
#define FIRST_K(k_range) 0
#define LAST_K(K, k_range) (K)
#endif
