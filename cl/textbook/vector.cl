/* vector: `block` with OpenCL vectors: a work-item holds TM rows of TN neighbouring columns, each row one vector.
 *
 *   for each k:   y = (tile_b(k, lj), ..., tile_b(k, lj + TN - 1))    one read of TN elements
 *                 acc[m] += tile_a(li + m, k) * y                     TN multiply-adds, one expression
 *
 *   global B  |e e e e|e e e e|...   vloadN where B's type needs no conversion, its rows are contiguous and
 *   tile_b    |VECTOR |VECTOR |      the vector lies inside the matrix; else one element at a time
 *
 * Macros: those of tiles.h; TN is 2, 4, 8 or 16. Accumulators are real: OpenCL has no vectors of complex numbers.
 * Technique: vector loads, vector arithmetic and vector stores.
 */
#include "textbook/tiles.h"

#define vector_uint32 uint
#define vector_uint64 ulong
#define vector_float32 float
#define vector_float64 double
typedef CAT(CAT(vector_, ACC_TYPE), TN) VECTOR;
#define VLOAD CAT(vload, TN)
#define VSTORE CAT(vstore, TN)
#define PLAIN_B (SAME_TYPE(B_TYPE, ACC_TYPE) && !TRANS_B)

INLINE void load_vectors_b(
    __local row_of_b *tile, __global const B_T *b, const long ldb, const int K, const int N, const int t,
    const int j0, const int id)
{
  for (int e = id; e < BK * ITEMS_X; e += ITEMS) {
    const int row = e / ITEMS_X, col = e % ITEMS_X * TN;
#if PLAIN_B
    if (t + row < K && j0 + col + TN <= N) {
      VSTORE(VLOAD(0, b + B_INDEX(t + row, j0 + col, ldb)), 0, &tile[row][col]);
      continue;
    }
#endif
    for (int n = 0; n < TN; ++n) tile[row][col + n] = GUARDED_B(b, t + row, j0 + col + n, ldb, K, N);
  }
}

__kernel WORK_GROUP(ITEMS_X, ITEMS_Y, 1) void matmul_vector(GEMM_ARGS)
{
  __local row_of_a tile_a[BM];
  __local row_of_b tile_b[BK];
  GEMM_BEGIN;
  const int lj = get_local_id(0) * TN;
  const int li = get_local_id(1) * TM;
  const int id = get_local_id(1) * ITEMS_X + get_local_id(0);
  const int j0 = get_group_id(0) * BN;
  const int i0 = get_group_id(1) * BM;

  VECTOR acc[TM];
  for (int m = 0; m < TM; ++m) acc[m] = (VECTOR)(ACC_ZERO);
  for (int t = 0; t < K; t += BK) {
    load_tile_a(tile_a, a, lda, M, K, i0, t, id);
    load_vectors_b(tile_b, b, ldb, K, N, t, j0, id);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < BK; ++k) {
      const VECTOR y = VLOAD(0, &tile_b[k][lj]);
      for (int m = 0; m < TM; ++m) acc[m] += (VECTOR)(tile_a[li + m][k]) * y;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int m = 0; m < TM; ++m) {
    ACC_T row[TN];
    VSTORE(acc[m], 0, row);
    for (int n = 0; n < TN; ++n) STORE_RESULT(i0 + li + m, j0 + lj + n, row[n], RESULT);
  }
}
