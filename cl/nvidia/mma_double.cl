/* mma_double: out = A B in float64 on the matrix units of sm_80 and sm_90. The ring of stages and a sketch of the tiles
 * are in mma_ring.h, the fragments in mma_double.h. Work-group g computes tile g (tile_order.h).
 *
 * Macros: BM BN SGM SGN STAGES GROUP (mma_ring.h); BK MMA_K VEC (mma_double.h); OUT_VECTOR (fragment.h); TRANS_A
 * TRANS_B (gemm.h).
 * Technique: mma.sync and cp.async as in NVIDIA's PTX manual.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "nvidia/mma_double.h"
#include "nvidia/mma_ring.h"
#include "nvidia/fragment.h"

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma_double(GEMM_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(16);
  GEMM_BEGIN;
  const int sub_group = get_local_id(0) / 32;
  const int row = sub_group / SG_COLUMNS * SGM, column = sub_group % SG_COLUMNS * SGN;
  const int2 origin = tile_at(get_group_id(0), (M + BM - 1) / BM, (N + BN - 1) / BN) * (int2)(BM, BN);
  const Operand rows = operand_of(a, lda * ELEMENT_BYTES, BM, ACROSS_A, origin.s0, M, 0);
  const Operand columns = operand_of(b, ldb * ELEMENT_BYTES, BN, ACROSS_B, origin.s1, N, TILE_A);
  acc_t sum[MT][4 * NT];
  multiply_tile(sum, tiles, rows, columns, K, row, column);
  UNROLL for (int i = 0; i < MT; ++i)
    store_fragments(
        origin.s0 + row + 16 * i + (int)get_local_id(0) % 32 / 4, 8, origin.s1 + column, sum[i], NT, RESULT);
}
