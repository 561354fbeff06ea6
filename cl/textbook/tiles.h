/* tiles: a BM x BK tile of A and a BK x BN tile of B in local memory, filled by all work-items of a work-group.
 *
 *   work-item id loads elements id, id + ITEMS, id + 2 ITEMS, ... of each tile, counted along the operand's
 *   contiguous axis, so that neighbouring work-items read neighbouring elements of global memory
 *
 * Where a tile reaches beyond the matrix it is filled with zeros, which add nothing.
 *
 * Macros: BM BN BK, the tile; TM TN, the elements of out for each work-item: TM divides BM, TN divides BN; those of
 * types.h and gemm.h. Work-groups must be BN / TN x BM / TM.
 */
#include "include/gemm.h"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM) || !defined(TN)
#error "tiles.h needs BM BN BK TM TN"
#endif
#define ITEMS_X (BN / TN)
#define ITEMS_Y (BM / TM)
#define ITEMS (ITEMS_X * ITEMS_Y)

typedef ACC_T row_of_a[BK];
typedef ACC_T row_of_b[BN];

INLINE void load_tile_a(
    __local row_of_a *tile, __global const A_T *a, const long lda, const int M, const int K, const int i0,
    const int t, const int id)
{
  for (int e = id; e < BM * BK; e += ITEMS) {
    const int row = TRANS_A ? e % BM : e / BK;
    const int col = TRANS_A ? e / BM : e % BK;
    tile[row][col] = GUARDED_A(a, i0 + row, t + col, lda, M, K);
  }
}

INLINE void load_tile_b(
    __local row_of_b *tile, __global const B_T *b, const long ldb, const int K, const int N, const int t,
    const int j0, const int id)
{
  for (int e = id; e < BK * BN; e += ITEMS) {
    const int row = TRANS_B ? e % BK : e / BN;
    const int col = TRANS_B ? e / BK : e % BN;
    tile[row][col] = GUARDED_B(b, t + row, j0 + col, ldb, K, N);
  }
}
