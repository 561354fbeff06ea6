/* wgmma_residues: products by modulus on the matrix units of sm_90a (cl/residues/residues.h). As wgmma.cl, whose sketch and
 * macros hold, but for two things:
 *
 *     fewer products of the stack may be needed than were expected: gate[0], which an earlier launch wrote
 *     sums are taken modulo the number of their product (moduli.h) before they are stored, without an epilogue
 *
 * Macros: GATE 2 (gemm.h); MODULI MODULI_LIST (moduli.h); those of wgmma.cl.
 */
#include "include/gemm.h"
#include "nvidia/wgmma.cl"

#if GATE != 2 || CLUSTER > 1
#error "wgmma_residues.cl needs GATE 2 and CLUSTER 1"
#endif

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma(
    GEMM_ARGS, OPERAND_STRIDES, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int split_k,
    const int stack)
{
  __local uchar tiles[STAGES * BLOCK_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] ALIGNED(128);

  /* --- Operands, of the products that are needed, and barriers --- */
  if (GATE_SHUT) return;
  const long z = BATCH_ENTRY;
  const int quartet = get_local_id(0) / 128;
  const work_t work = work_of(M, N, K, BLOCK_K, stack > 1 ? min(stack, gate[0]) : stack, whole, split_k);
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
