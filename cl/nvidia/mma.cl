/* mma: out = A B on the matrix units of sm_80 and later, for 16-bit, TF32 and 8-bit operands, and for float64 (`mma_double`).
 * The ring of stages and a sketch of the tiles are in mma_ring.h, the fragments in mma_fragments.h. Work-group g computes tile g
 * (tile_order.h).
 *
 * Macros: BM BN SGM SGN STAGES GROUP CHUNK_A CHUNK_B (mma_ring.h); ELEMENT, which is A_TYPE, and of float64 BK MMA_K
 * (mma_fragments.h); TRANS_A TRANS_B: how operands are stored, after packing; OUT_VECTOR (fragment.h); SPLIT_K (mma_partial.h).
 * Packed operands come as operands.h says. `staged` 1: results in rows that are not aligned go through local memory (staged_lines.h).
 * Preconditions: operands of 8 bits are stored along K, on multiples of 4 bytes.
 * Technique: ldmatrix, mma.sync and cp.async as in NVIDIA's PTX manual.
 */
#include "include/gemm.h"
#include "nvidia/operands.h"
#include "nvidia/mma_ring.h"
#include "nvidia/mma_partial.h"
#include "nvidia/fragment.h"
#include "nvidia/staged_lines.h"

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma(GEMM_ARGS, OPERAND_STRIDES, PARTIAL_ARGS, const int staged)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
#if !LISTED
  const long z = BATCHED ? BATCH_ENTRY : 0;
  __global const uchar *all_rows =
      operand_in_stack(a, a_offset, z, a_stride, BATCH_OFFSET(batch_offsets, 0), ELEMENT_BYTES);
  __global const uchar *all_columns =
      operand_in_stack(b, b_offset, z, b_stride, BATCH_OFFSET(batch_offsets, 1), ELEMENT_BYTES);
#endif
  GEMM_BEGIN;
  const int sub_group = get_local_id(0) / 32;
  const int row = sub_group / SG_COLUMNS * SGM, column = sub_group % SG_COLUMNS * SGN;
#if LISTED
  __global const uchar *all_rows = (__global const uchar *)a, *all_columns = (__global const uchar *)b;
  const int2 origin = tile_listed.yz;
#else
  const int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN;
  const int2 origin = tile_at(get_group_id(0), tiles_m, tiles_n) * (int2)(BM, BN);
#endif
  const int first_k = FIRST_K(k_range), last_k = LAST_K(K, k_range);
  const Operand rows = operand_of(all_rows, lda * ELEMENT_BYTES, BM, LIE_A, CHUNK_A, origin.s0, M, first_k, last_k, 0);
  const Operand columns =
      operand_of(all_columns, ldb * ELEMENT_BYTES, BN, LIE_B, CHUNK_B, origin.s1, N, first_k, last_k, TILE_A);
  acc_t sum[MT][4 * NT];
  multiply_tile(sum, tiles, rows, columns, last_k - first_k, row, column);
#if SPLIT_K
  store_partial_sums(partial, row, column, sum);
#else
  UNROLL for (int i = 0; i < MT; ++i) reduce_sums(sum[i], 4 * NT, BATCH_ENTRY);
#if STAGED_LINES
  if (staged) {
    barrier(CLK_LOCAL_MEM_FENCE); /* all have read the last block */
    UNROLL for (int i = 0; i < MT; ++i)
      stage_fragments(
          (__local uint *)tiles, row + 16 * i, column, origin.s0 + row + 16 * i, origin.s1 + column, sum[i], RESULT);
    barrier(CLK_LOCAL_MEM_FENCE);
    store_lines((__local const ushort *)tiles, origin, M, N, out, ldo);
    return;
  }
#endif
  UNROLL for (int i = 0; i < MT; ++i)
    store_fragments(
        origin.s0 + row + 16 * i + (int)get_local_id(0) % 32 / 4, 8, origin.s1 + column, sum[i], NT, RESULT);
#endif
}
