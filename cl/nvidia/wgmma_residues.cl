/* wgmma_residues: products by modulus on the matrix units of sm_90a (cl/residues/residues.h). As wgmma.cl, whose sketch and
 * macros hold, but for two things:
 *
 *     fewer products of the stack may be needed than were expected: gate[0], which an earlier launch wrote
 *     sums are taken modulo the number of their product (moduli.h) before they are stored, without an epilogue
 *
 * Macros: GATE 2 (gemm.h); MODULI MODULI_LIST (moduli.h); those of wgmma.cl.
 */
#include "include/gemm.h"
#include "nvidia/wgmma_feeders.h"
#include "nvidia/wgmma_multiply.h"
#include "nvidia/wgmma_store.h"

#if GATE != 2 || CLUSTER > 1
#error "wgmma_residues.cl needs GATE 2 and CLUSTER 1"
#endif

/* A quartet's part of all pieces of this work-group. */
INLINE void multiply(
    const int quartet, const work_t work, const stages_t stages, __global wgmma_acc *partial,
    __global const long *batch_offsets, RESULT_ARGS)
{
  /* --- Prologue --- */
  const int part = ALTERNATE ? 0 : quartet - 1;
  const int pieces = pieces_of(work), groups = get_num_groups(0);
  const uint rows = place_of_rows(part);
  ring_t ring = {0, 0};
  bool mine = !ALTERNATE || quartet == 2;
  uint left[4][4 * FRAGMENTS]; /* used only with LEFT_REGISTERS */
  for (int number = get_group_id(0); number < pieces; number += groups) {
    const piece_t piece = piece_at(number, work);
    if (ALTERNATE) mine = !mine;
    if (!mine) { /* the other quartet's */
      ring = advanced(ring, piece.end - piece.first);
      continue;
    }
    wgmma_acc acc[ACCS];
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;
    if (ALTERNATE && number != (int)get_group_id(0)) meet(TURN_OF(quartet), TWO_QUARTETS);

    /* --- Main loop --- */
    int last = -1;
    for (int step = piece.first; step < piece.end; ++step) {
      multiply_stage(acc, left, rows, stages, ring, last);
      last = ring.stage;
      ring = advanced(ring, 1);
    }
    if (ALTERNATE && number + groups < pieces) announce(TURN_OF(3 - quartet), TWO_QUARTETS);
    UNROLL for (int f = 0; f < FRAGMENTS; ++f) wgmma_wait(acc + f * WGMMA_ACC);
    if (last >= 0) release(stages, last);

    /* --- Epilogue: partial sums, or residues of the product's sums --- */
    if (SPLIT_K && piece.range >= 0) {
      store_partial(acc, piece, part, work, partial);
    } else {
      reduce_sums(acc, ACCS, BATCH_ENTRY + piece.layer);
      store_product(acc, piece, part, batch_offsets, RESULT);
    }
  }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma(
    GEMM_ARGS, OPERAND_STRIDES, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int split_k,
    const int stack)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] ALIGNED(128);

  /* --- Operands, of the products that are needed --- */
  if (GATE_SHUT) return;
  const long z = BATCH_ENTRY;
  const int quartet = get_local_id(0) / 128;
  const work_t work = work_of(M, N, K, STAGE_K, stack > 1 ? min(stack, gate[0]) : stack, whole, split_k);
  if ((int)get_group_id(0) >= pieces_of(work)) return;
  const stages_t stages = stages_in(tiles, bars);
  const int sub_group = first_ones(get_local_id(0) / 32);
  const feeder_t feeder =
      feeder_of(sub_group, slot_of(maps, sub_group / 2), work, scratch, z, stack, OPERANDS);

  /* --- Barriers --- */
  if (get_local_id(0) == WORK_ITEMS - 1) begin_stages(stages, 2, 4 * OWNERS);
  barrier(CLK_LOCAL_MEM_FENCE);
  out += out_offset;
  EXTRAS_BEGIN(0, 0);

  /* --- Copies by quartet 0, products by the others --- */
  if (quartet == 0) {
    feed(feeder, work, stages);
    return;
  }
  multiply(quartet, work, stages, partial, batch_offsets, RESULT);
}
