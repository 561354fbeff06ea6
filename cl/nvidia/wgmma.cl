/* wgmma: out = A B on the matrix units of sm_90a, from tiles that the copy engine brings.
 *
 *                        BN                quartet 0: feeders start the copies (wgmma_feeders.h)
 *                 +--------------+         quartets 1 ..: multiply
 *      K: 128     | B            |
 *      bytes      +--------------+         STAGES blocks of K are in flight
 *     +------+    +--------------+
 *  BM | A    |    | quartet 1    |         ALTERNATE 0: BM / 64 quartets, 64 rows of each tile each
 *     |      |    | quartet 2    |         ALTERNATE 1: two quartets, each computes every other piece;
 *     +------+    +--------------+                      one multiplies while the other stores
 *
 * Work-groups divide the pieces: tiles, or ranges of a tile's K (work_pieces.h). split_k.cl adds the partial sums of
 * ranges. The next piece's copies run while this one is stored.
 *
 * Where to read on: wgmma_feeders.h, what quartet 0 does; wgmma_quartet.h, what the others do with a stage and with their sums.
 * wgmma_drain.cl, whose results leave through local memory while the next tile is multiplied, has a loop and an entry of its own.
 *
 * GATE 2: products by modulus (cl/residues/residues.h), whose sums are taken modulo a number before they are stored (moduli.h).
 * LISTED 1: rows of A and of out are divided; product p multiplies layer p of B, and its rows end where the next ones begin.
 * LISTED 2: K is divided. The last stage of a product also has k of the next one: zeros replace them.
 *
 * SWAPPED 1: computes out^T = B^T A^T, and `a` is the caller's b. Matrix units read TF32 and bytes from local memory
 * only along K. They also take A from registers, and then A may be stored across K (LEFT_REGISTERS,
 * fragment_rows.h). So the caller's operand that is stored across K becomes A.
 *
 * Macros: BM, a multiple of 64; BN (ptx_wgmma.h); STAGES, 2 or more; ALTERNATE SWAPPED SPLIT_K 0, 1; CLUSTER (ptx_map.h); GROUP
 * (tile_order.h); OUT_VECTOR (fragment.h); ELEMENT, which is A_TYPE (operands.h); ACROSS_A ACROSS_B 1: the operand is stored
 * across K, 0: along K, after packing; GATE 0, 2 and LISTED (gemm.h). With either of these CLUSTER 1; with LISTED SPLIT_K and
 * SWAPPED 0; with LISTED 2 ACROSS_A ACROSS_B 1 and BN 64 or more.
 * Preconditions: operands and their rows begin on multiples of 16 bytes. With TF32 and bytes B lies along K.
 * Technique: wgmma and tensor maps as in NVIDIA's PTX manual; ALTERNATE 1 is CUTLASS's "ping-pong" schedule.
 */
#include "include/gemm.h"
#include "nvidia/wgmma_quartet.h"

#if GATE == 1 || ((GATE || LISTED) && CLUSTER > 1) || (LISTED && (SPLIT_K || SWAPPED)) || \
    (LISTED == 2 && (!ACROSS_A || !ACROSS_B || BN < 64))
#error "wgmma.cl: see its macros"
#endif

/* A quartet's part of all pieces of this work-group. */
INLINE void multiply(
    const int quartet, const work_t work, const stages_t stages, __global wgmma_acc *partial,
    __global const long *batch_offsets, RESULT_ARGS)
{
  /* --- Prologue --- */
  const int part = ALTERNATE ? 0 : quartet - 1; /* of a tile: 64 rows, or all */
  const int pieces = pieces_of(work), groups = piece_step();
  const uint rows = place_of_rows(part);
  ring_t ring = {0, 0};
  bool mine = !ALTERNATE || quartet == 2;
  uint left[4][4 * FRAGMENTS]; /* used only with LEFT_REGISTERS */
  for (int number = first_piece(); number < pieces; number += groups) {
    const piece_t piece = piece_at(number, work);
    if (ALTERNATE) mine = !mine;
    if (!mine) { /* the other quartet's */
      ring = advanced(ring, piece.end - piece.first);
      continue;
    }
    wgmma_acc acc[ACCS]; /* BM x BN of out in the registers of the quartets (ptx_wgmma.h) */
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;
    if (ALTERNATE && number != first_piece()) meet(turn_of(quartet), TWO_QUARTETS);

    /* --- Main loop: stage after stage. Each is released when the one behind it has been issued. --- */
    int last = -1;
    for (int step = piece.first; step < piece.end; ++step) {
#if LISTED == 2
      if (step + 1 == piece.end) clear_rest(quartet, stages, ring, piece.depth - step * BLOCK_K);
#endif
      multiply_stage(acc, left, rows, stages, ring, last);
      last = ring.stage;
      ring = advanced(ring, 1);
    }
    if (ALTERNATE && number + groups < pieces) announce(turn_of(3 - quartet), TWO_QUARTETS);
    UNROLL for (int f = 0; f < FRAGMENTS; ++f) wgmma_wait(acc + f * WGMMA_ACC);
    if (last >= 0) release(stages, last);

    /* --- Epilogue: from registers to the piece's product of the stack or list, or to partial sums. Only residues are reduced. --- */
#if LISTED
    store_product(
        acc, piece, part, stages, batch_offsets,
        piece.rows, N, out + piece.out, ldo, c, c_rs, c_cs, bias, bias_stride, alpha, beta);
#else
    if (SPLIT_K && piece.range >= 0) {
      store_partial(acc, piece, part, work, partial);
    } else {
      reduce_sums(acc, ACCS, BATCH_ENTRY + piece.layer);
      store_product(acc, piece, part, stages, batch_offsets, RESULT);
    }
#endif
  }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma(
    GEMM_ARGS, OPERAND_STRIDES, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int split_k,
    const int stack)
{
  __local uchar tiles[STAGES * BLOCK_BYTES + LINES_BYTES] ALIGNED(1024); /* stage: A, BM x 128 bytes of K | B, BN x 128 bytes of K */
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] ALIGNED(128);

  /* --- Operands: each feeder's tensor map of A (M x K) or of B (K x N), and its first piece. Barriers --- */
  if (GATE_SHUT) return;
  const long z = BATCH_ENTRY;
  const int quartet = get_local_id(0) / 128;
#if LISTED
  LISTED_OF_ALL;
  const work_t work = listed_work(work_of(M, N, K, BLOCK_K, 1, whole, split_k), BLOCK_K, tiles_listed, products);
#elif GATE /* fewer products of the stack may be needed than were expected */
  const work_t work = work_of(M, N, K, BLOCK_K, stack > 1 ? min(stack, gate[0]) : stack, whole, split_k);
#else
  const work_t work = work_of(M, N, K, BLOCK_K, stack, whole, split_k);
#endif
#if LISTED || GATE
  if ((int)get_group_id(0) >= pieces_of(work)) return;
#endif
  const stages_t stages = stages_in(tiles, bars);
  const feeder_t feeder = begin_stages_of(stages, maps, work, scratch, z, stack, OPERANDS);
  out += out_offset;
  EXTRAS_BEGIN(0, 0);

  /* --- Copies by quartet 0, products by the others --- */
  if (quartet == 0) {
    feed(feeder, work, stages);
  } else {
    multiply(quartet, work, stages, partial, BATCH_OFFSETS, RESULT);
  }
  meet_members(); /* nobody ends whose barriers others still arrive at */
}
