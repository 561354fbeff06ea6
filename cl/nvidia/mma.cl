/* mma: out = A B on the matrix units of sm_80 and later, of 16-bit, TF32 and 8-bit operands: the ring of mma_ring.h,
 * the fragments of mma_words.h.
 *
 * Operands lie on multiples of 16 bytes, and so does each of their rows. One that pack.cl has packed is passed as a
 * (not transposed) or b (transposed), with its own leading dimension.
 *
 * Macros: those of the headers. a_layer, b_layer: elements from a packed operand's product of a stack to the next; -1:
 * batch_offsets says where they lie.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "nvidia/mma_words.h"
#include "nvidia/mma_ring.h"
#define EXPONENTS 0
#include "nvidia/fragment.h"

/* What moves an operand from where batch_offsets has moved it, by `moved`, to product z of a packed stack. */
static inline long to_layer(const long layer, const long z, const long moved)
{
  return layer < 0 ? 0 : z * layer - moved;
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma(GEMM_ARGS, const long a_layer, const long b_layer)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  GEMM_BEGIN;
  a += to_layer(a_layer, BATCH_ENTRY, BATCH_OFFSET(0));
  b += to_layer(b_layer, BATCH_ENTRY, BATCH_OFFSET(1));
  const int sub_group = get_local_id(0) / 32;
  const int row = sub_group / SG_COLUMNS * SGM, column = sub_group % SG_COLUMNS * SGN;
  const int2 origin = tile_at(get_group_id(0), (M + BM - 1) / BM, (N + BN - 1) / BN) * (int2)(BM, BN);
  const Operand rows = operand_of(a, lda * ELEMENT_BYTES, BM, ACROSS_A, origin.s0, M, 0);
  const Operand columns = operand_of(b, ldb * ELEMENT_BYTES, BN, ACROSS_B, origin.s1, N, TILE_A);
  acc_t sum[MT][4 * NT];
  multiply_tile(sum, tiles, rows, columns, K, row, column);
  UNROLL for (int i = 0; i < MT; ++i)
    STORE_FRAGMENTS(origin.s0 + row + 16 * i + (int)get_local_id(0) % 32 / 4, origin.s1 + column, sum[i], NT);
}
