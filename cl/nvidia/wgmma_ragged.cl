/* wgmma_ragged: rows or K divided among products, on the matrix units of sm_90a. As wgmma.cl, whose sketch and macros hold,
 * but pieces are those of a table (listed.h), of which there may be fewer than work-groups.
 *
 * LISTED 1: rows of A and of out are divided; product p multiplies layer p of B, and its rows end where the next ones begin.
 * LISTED 2: K is divided. The last stage of a product also has k of the next one: zeros replace them.
 *
 * Macros: LISTED 1, 2; SPLIT_K 0; SWAPPED 0; CLUSTER 1; with LISTED 2 ACROSS_A ACROSS_B 1 and BN 64 or more; those of wgmma.cl.
 */
#include "include/gemm.h"
#include "nvidia/wgmma.cl"

#if !LISTED || SPLIT_K || SWAPPED || CLUSTER > 1
#error "wgmma_ragged.cl: see its macros"
#endif
#if LISTED == 2 && (!ACROSS_A || !ACROSS_B || BN < 64)
#error "wgmma_ragged.cl divides K of operands that are stored across K, in boxes of 128 bytes"
#endif

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma(
    GEMM_ARGS, OPERAND_STRIDES, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int split_k,
    const int stack)
{
  __local uchar tiles[STAGES * BLOCK_BYTES + LINES_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] ALIGNED(128);

  /* --- Operands and barriers --- */
  LISTED_OF_ALL;
  const long z = BATCH_ENTRY;
  const int quartet = get_local_id(0) / 128;
  const work_t work = listed_work(work_of(M, N, K, BLOCK_K, 1, whole, split_k), BLOCK_K, tiles_listed, products);
  if ((int)get_group_id(0) >= pieces_of(work)) return;
  const stages_t stages = stages_in(tiles, bars);
  const feeder_t feeder = begin_stages_of(stages, maps, work, scratch, z, stack, OPERANDS);
  out += out_offset;
  EXTRAS_BEGIN(0, 0);

  /* --- Copies by quartet 0, products by the others --- */
  if (quartet == 0) {
    feed(feeder, work, stages);
    return;
  }
  multiply(quartet, work, stages, partial, BATCH_OFFSETS, RESULT);
}
