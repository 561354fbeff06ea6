/* mma: out = A B on the matrix units of sm_80 and later, for 16-bit, TF32 and 8-bit operands, and for float64 (`mma_double`).
 * The ring of stages and a sketch of the tiles are in mma_ring.h, the fragments in mma_fragments.h. Work-group g computes tile g
 * (tile_order.h).
 *
 * Macros: BM BN SGM SGN STAGES GROUP CHUNK_A CHUNK_B (mma_ring.h); ELEMENT, which is A_TYPE, and of float64 BK MMA_K
 * (mma_fragments.h); TRANS_A TRANS_B: how operands are stored, after packing; OUT_VECTOR (fragment.h).
 * SPLIT_K 1: work-groups of dimension 1 of the NDRange divide K: each multiplies k_range of it, a multiple of BK, and stores
 * partial sums of its tile, row by row, which split_k.cl adds. 0: a work-group multiplies all of K.
 * Packed operands come as operands.h says. `staged` 1: 16-bit results in rows that do not begin on multiples of 16 bytes go through
 * local memory.
 * Preconditions: operands of 8 bits are stored along K, on multiples of 4 bytes.
 * Technique: ldmatrix, mma.sync and cp.async as in NVIDIA's PTX manual.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "nvidia/mma_ring.h"
#include "nvidia/fragment.h"
#include "nvidia/lines.h"

#ifndef SPLIT_K
#error "mma.cl needs SPLIT_K"
#endif
#if SPLIT_K
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
#endif

/* --- Results through local memory, so that work-items store whole lines of 128 bytes of a row. Without that, an access of a
 * sub-group (fragment.h) would meet eight rows with 16 bytes or less in each.
 *
 *     fragments --> | row 0: BN elements | 16 bytes | row 1 ..        local memory
 *                    \__ LANES work-items, two elements each: words of 4 bytes of out, but for an odd first or last one
 *
 * The 16 bytes between rows let eight rows of four pairs meet 32 memory banks. */
#define STAGED_LINES (OUT_16 && OUT_VECTOR != 2)
#if STAGED_LINES
#define STAGED_LINE (BN + 8) /* elements */
#define LANES (BN < 64 ? BN / 2 : 32)
#if BM * STAGED_LINE * 2 > STAGES * STAGE_BYTES
#error "mma.cl: lines need the local memory of the stages"
#endif

/* Leaves a sub-group's fragments in local memory. `row`, `column`: their place in the tile; i, j: in out. */
INLINE void stage_fragments(
    __local uint *staged, const int row, const int column, const int i, const int j, const sum_t *acc, RESULT_ARGS)
{
  const int paired = (int)get_local_id(0) % 4 * 2, line = (int)get_local_id(0) % 32 / 4;
  UNROLL for (int h = 0; h < 2; ++h)
    UNROLL for (int b = 0; b < NT; ++b) {
      const int at = (row + line + 8 * h) * STAGED_LINE + column + 8 * b + paired;
      staged[at / 2] = packed_pair(i + line + 8 * h, j + 8 * b + paired, acc + 4 * b + 2 * h, RESULT);
    }
}

/* Stores the tile at `origin` of out. All work-items of the work-group call this after a barrier. */
INLINE void store_lines(
    __local const ushort *staged, const int2 origin, const int M, const int N, __global OUT_T *out, const long ldo)
{
  const int lane = (int)get_local_id(0) % LANES, count = min(BN, N - origin.s1);
  UNROLL for (int pass = 0; pass < BM; pass += WORK_ITEMS / LANES) {
    const int row = pass + (int)get_local_id(0) / LANES;
    __local const ushort *from = staged + row * STAGED_LINE;
    __global ushort *to = (__global ushort *)out + (origin.s0 + row) * ldo + origin.s1;
    store_line(to, from, 0, origin.s0 + row < M ? count : 0, BN, LANES, OUT_VECTOR > 0, lane);
  }
}
#endif

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma(
    GEMM_ARGS, OPERAND_STRIDES, __global uchar *partial, const int k_range, const int staged)
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
  const int first_k = SPLIT_K ? get_group_id(1) * k_range : 0, last_k = SPLIT_K ? min(K, first_k + k_range) : K;
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
