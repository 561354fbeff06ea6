/* mma_double: out = A B in float64 on the matrix units of sm_80 and sm_90. The ring of stages and a sketch of the tiles
 * are in mma_ring.h, the fragments in mma_fragments.h. Work-group g computes tile g (tile_order.h).
 *
 * Macros: BM BN SGM SGN STAGES GROUP CHUNK_A CHUNK_B (mma_ring.h); BK MMA_K (mma_fragments.h); OUT_VECTOR (fragment.h);
 * SPLIT_K (mma_partial.h); TRANS_A TRANS_B (gemm.h).
 * Technique: mma.sync and cp.async as in NVIDIA's PTX manual.
 */
#include "include/gemm.h"
#include "nvidia/mma_ring.h"
#include "nvidia/mma_partial.h"
#include "nvidia/fragment.h"

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma_double(GEMM_ARGS, PARTIAL_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(16);
  GEMM_BEGIN;
  const int sub_group = get_local_id(0) / 32;
  const int row = sub_group / SG_COLUMNS * SGM, column = sub_group % SG_COLUMNS * SGN;
  const int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN;
  const int2 origin = tile_at(get_group_id(0), tiles_m, tiles_n) * (int2)(BM, BN);
  const int first_k = FIRST_K(k_range), last_k = LAST_K(K, k_range);
  const Operand rows = operand_of(a, lda * ELEMENT_BYTES, BM, LIE_A, CHUNK_A, origin.s0, M, first_k, last_k, 0);
  const Operand columns =
      operand_of(b, ldb * ELEMENT_BYTES, BN, LIE_B, CHUNK_B, origin.s1, N, first_k, last_k, TILE_A);
  acc_t sum[MT][4 * NT];
  multiply_tile(sum, tiles, rows, columns, last_k - first_k, row, column);
#if SPLIT_K
  store_partial_sums(partial, row, column, sum);
#else
  UNROLL for (int i = 0; i < MT; ++i)
    store_fragments(
        origin.s0 + row + 16 * i + (int)get_local_id(0) % 32 / 4, 8, origin.s1 + column, sum[i], NT, RESULT);
#endif
}
