/* mma: out = A B on the matrix units of sm_80 and later, of 16-bit, TF32 and 8-bit operands: the ring of mma_ring.h,
 * the fragments of mma_words.h.
 *
 * Operands lie on multiples of 16 bytes, and so does each of their rows. Packed ones
 * come as operands.h says. Macros: those of the headers.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "nvidia/operands.h"
#include "nvidia/mma_words.h"
#include "nvidia/mma_ring.h"
#include "nvidia/fragment.h"

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma(GEMM_ARGS, OPERAND_STRIDES)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  __global const uchar *all_rows =
      operand_in_stack(a, a_offset, BATCH_ENTRY, a_stride, BATCH_OFFSET(batch_offsets, 0), ELEMENT_BYTES);
  __global const uchar *all_columns =
      operand_in_stack(b, b_offset, BATCH_ENTRY, b_stride, BATCH_OFFSET(batch_offsets, 1), ELEMENT_BYTES);
  GEMM_BEGIN;
  const int sub_group = get_local_id(0) / 32;
  const int row = sub_group / SG_COLUMNS * SGM, column = sub_group % SG_COLUMNS * SGN;
  const int2 origin = tile_at(get_group_id(0), (M + BM - 1) / BM, (N + BN - 1) / BN) * (int2)(BM, BN);
  const Operand rows = operand_of(all_rows, lda * ELEMENT_BYTES, BM, ACROSS_A, origin.s0, M, 0);
  const Operand columns = operand_of(all_columns, ldb * ELEMENT_BYTES, BN, ACROSS_B, origin.s1, N, TILE_A);
  acc_t sum[MT][4 * NT];
  multiply_tile(sum, tiles, rows, columns, K, row, column);
  UNROLL for (int i = 0; i < MT; ++i)
    store_fragments(
        origin.s0 + row + 16 * i + (int)get_local_id(0) % 32 / 4, 8, origin.s1 + column, sum[i], NT, RESULT);
}
