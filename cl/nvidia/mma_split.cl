/* mma_split: out = A B on the matrix units of sm_80 and sm_90, from operands that split.cl has packed as parts. It is
 * wgmma_split.cl with instructions that need no rewriting of the program. The ring of stages and a sketch of the tiles
 * are in mma_ring.h, the fragments in mma_fragments.h. A block is 64 bytes of hi and 64 bytes of lo of the same k.
 *
 * Macros: SPLIT 1, 2, and others of split.h; ELEMENT, of the parts: float16, float32 (mma_fragments.h); BM BN SGM SGN STAGES GROUP
 * CHUNK_A CHUNK_B (mma_ring.h); OUT_VECTOR (fragment.h). `pitch`: elements of a packed row of A or column of B, hi and lo together,
 * in whole blocks.
 * Technique: as in mma.cl; parts: see split.h.
 */
#include "include/gemm.h"
#include "nvidia/split.h"
#include "nvidia/mma_ring.h"
#include "nvidia/split_guard.h"
#include "nvidia/fragment.h"

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma_split(
    GEMM_ARGS, __global uchar *packed_a, __global uchar *packed_b, const long pitch SPLIT_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  const int columns = N * PLANES, depth = K * PLANES; /* of the real product */
#if SPLIT == 1
  exponents += z * (M + columns);
  __local int worst[3];
  if (!half_parts_serve(quality, done, z, M, columns, depth, worst)) {
    split_all_to_tf32(
        source_a(a, lda, M, depth), source_b(b, ldb, columns, depth), packed_a, packed_b, z, WORK_ITEMS);
    return;
  }
#elif SPLIT == 2
  __local int ends[3];
  if (done[z]) return;
  if (!tf32_parts_serve(exponents + z * (M + columns), M, columns, depth, ends)) {
    multiply_plainly(a, lda, b, ldb, K, WORK_ITEMS, RESULT);
    return;
  }
#endif
  const int sub_group = get_local_id(0) / 32;
  const int row = sub_group / SG_COLUMNS * SGM, column = sub_group % SG_COLUMNS * SGN;
  const int2 origin = tile_at(get_group_id(0), (M + BM - 1) / BM, (columns + BN - 1) / BN) * (int2)(BM, BN);
#if SPLIT == 1
  __local int near[BM + BN];
  for (int i = get_local_id(0); i < BM + BN; i += WORK_ITEMS) {
    const int at = i < BM ? origin.s0 + i : origin.s1 + i - BM;
    near[i] = at < (i < BM ? M : columns) ? exponents[i < BM ? at : M + at] : 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  const long bytes = pitch * ELEMENT_BYTES;
  const int depth_of_parts = (int)pitch;
  const Operand a_lines = operand_of(
      packed_a + z * M * ROOM_OF_LINE(depth, bytes), bytes, BM, ALONG, CHUNK_A, origin.s0, M, 0, depth_of_parts, 0);
  const Operand b_lines = operand_of(
      packed_b + z * columns * ROOM_OF_LINE(depth, bytes), bytes, BN, ALONG, CHUNK_B, origin.s1, columns, 0, depth_of_parts, TILE_A);
  acc_t sum[MT][4 * NT];
  multiply_tile(sum, tiles, a_lines, b_lines, depth_of_parts, row, column);
  UNROLL for (int i = 0; i < MT; ++i) {
    const int my_row = row + 16 * i + (int)get_local_id(0) % 32 / 4;
#if SPLIT == 1
    scale_fragments(sum[i], near + my_row, near + BM + column, NT);
#endif
    store_fragments(origin.s0 + my_row, 8, origin.s1 + column, sum[i], NT, RESULT);
  }
}
