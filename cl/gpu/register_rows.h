/* register for small products: out = A B, with the sums exchanged through local memory and stored row by row.
 *
 *    work-items of slice 0, 1 .. KS - 1          local memory              all work-items
 *       acc(TM x TN) of their share of K   -->   KS x BM x BN sums   -->   add KS sums, store neighbours of a row
 *
 * A small product waits more than it computes: for memory, for one multiply-add after another, and for the stores
 * at the end. So K is cut into many slices, and every work-item, not only those of slice 0, finishes BM BN /
 * WORK_ITEMS elements of out. There is one launch and no split-K. The slices are added in order, so the bits are the
 * same every time.
 *
 * Macros: those of register_loop.h; KS divides TM TN, BN divides WORK_ITEMS. Dimension 0 of the NDRange has WORK_ITEMS for each column of tiles, dimension 1
 * a work-group for each row of tiles: a division to find a tile would delay the first copy.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/gemm.h"
#include "include/chunk.h"
#include "gpu/register_loop.h"

#define SUM_LINE (BN + CHUNK) /* padded: work-items that write different rows use different banks */
#define SLICE_SUMS (BM * SUM_LINE)
#define LOCAL_ELEMENTS LARGER(STAGES * STAGE, KS * SLICE_SUMS)

/* Writes this work-item's sums where their slice has them in local memory. */
INLINE void write_sums(__local ACC_T *sums, ACC_T (*acc)[TN], const Place p)
{
  sums += p.slice * SLICE_SUMS;
  UNROLL for (int r = 0; r < TM; ++r)
    UNROLL for (int c = 0; c < TN; c += CHUNK)
      *(__local chunk_t *)(sums + ROW_OF(p, r) * SUM_LINE + COL_OF(p, c)) = GATHERED(acc[r] + c);
}

/* A work-item finishes EACH elements of one column, ROWS rows apart. */
#define EACH (TM * TN / KS)
#define ROWS (WORK_ITEMS / BN)

/* to[n] = the sum over all slices at element `at` + n ROWS rows. */
INLINE void add_slices(ACC_T *to, __local const ACC_T *sums, const int at)
{
  UNROLL for (int n = 0; n < EACH; ++n) {
    to[n] = sums[at + n * ROWS * SUM_LINE];
    UNROLL for (int slice = 1; slice < KS; ++slice)
      to[n] = to[n] + sums[at + n * ROWS * SUM_LINE + slice * SLICE_SUMS];
  }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_register_rows(GEMM_ARGS)
{
  __local ACC_T tiles[LOCAL_ELEMENTS] ALIGNED(16);
  GEMM_BEGIN;
  Place p;
  find_place(&p, get_local_id(0));
  const int i0 = get_group_id(1) * BM, j0 = get_group_id(0) * BN;

  Stream stream;
  begin_walk(&stream.a, (__global const uchar *)(a + A_INDEX(i0, 0, lda)), sizeof(A_T), lda, M - i0, K,
             BM, LINE_A, VEC_A, !TRANS_A);
  begin_walk(&stream.b, (__global const uchar *)(b + B_INDEX(0, j0, ldb)), sizeof(B_T), ldb, N - j0, K,
             BN, LINE_B, VEC_B, TRANS_B);
  ACC_T acc[TM][TN];
  UNROLL for (int r = 0; r < TM; ++r) UNROLL for (int t = 0; t < TN; ++t) acc[r][t] = ACC_ZERO;
  accumulate(acc, &stream, tiles, p, K);

  DRAIN;
  barrier(CLK_LOCAL_MEM_FENCE); /* nobody reads the tiles any more */
  write_sums(tiles, acc, p);
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint lid = get_local_id(0);
  const int row = lid / BN, col = lid % BN, i = i0 + row, j = j0 + col;
  ACC_T sums[EACH];
  add_slices(sums, tiles, row * SUM_LINE + col);
  const long at = i * ldo + j;
  UNROLL for (int n = 0; n < EACH; ++n) STORE_RESULT_AT(at + n * ROWS * ldo, i + n * ROWS, j, sums[n], RESULT);
}
