/* wgmma_drain: wgmma.cl whose results leave through local memory while the next tile is multiplied.
 *
 * A compute unit stores at most 32 bytes a cycle (H200), so the 128 KB of a tile of 128 x 256 take as long as four
 * blocks of K. Here a quartet leaves its 64 rows in local memory, in chunks of 64 lines of 256 bytes. The drain, a
 * sub-group of quartet 0 for each of the two quartets, stores whole lines. It also applies the epilogue; of results
 * of 2 bytes the quartet does, before it leaves them, and there are no other chunks than 0 and 1:
 *
 *     chunk 0    behind the stages, at once
 *     chunk 1    in the stage that was multiplied last, at once. The drain stores it first and releases the stage
 *     others     stay in registers, and go behind the stages at steps of the next tile (CHUNK_STEP)
 *
 *     quartet                         its drain
 *     meets ROOM                 <--  announces: what lay behind the stages is stored
 *     meets FREE: neither quartet reads the stage any more
 *     announces                  -->  meets LEFT
 *
 * The last tile of a work-group, tiles at the edges of out and short products are stored from registers.
 *
 * Macros: BM 128; BN 192, 256; ALTERNATE SPLIT_K HAS_C 0; those of wgmma.cl. For results of 4 bytes BIAS 0, and SWAPPED 1
 * only with LEFT_REGISTERS. For results of 2 bytes BN 256, SWAPPED LEFT_REGISTERS 0.
 * Preconditions: results of 4 or 2 bytes, in rows that begin on multiples of 16; those of wgmma.cl.
 */
#include "include/gemm.h"
#include "nvidia/wgmma_quartet.h"

#if BM != 128 || BN < 192 || ALTERNATE || SPLIT_K || HAS_C || GATE || LISTED
#error "wgmma_drain.cl: see its macros"
#elif OUT_16 ? BN % 128 || SWAPPED || LEFT_REGISTERS : OUT_WIDTH != 4 || BIAS || (SWAPPED && !LEFT_REGISTERS)
#error "wgmma_drain.cl: see its macros"
#endif
#define CHUNK_SUMS (CHUNK_COLUMNS / 2) /* of a work-item */
#define CHUNKS (BN / CHUNK_COLUMNS)
#define CHUNK_STEP(chunk) (4 * (chunk) - 4)
#define AT_ONCE 4 /* loads of a work-item of the drain */

/* Named barriers: of a quartet and its drain; of both quartets. `part`: 0, 1. */
#define LEFT(part) (1 + (part))
#define ROOM(part) (3 + (part))
#define FREE 5
#define MEMBERS 160 /* of a quartet and its drain */
/* Whether the results of piece `number` leave this way. */
INLINE bool drains(const piece_t piece, const int number, const work_t work, const int M, const int N)
{
  const bool last = number + piece_step() >= pieces_of(work);
  const bool whole = piece.origin.s0 + BM <= M && piece.origin.s1 + BN <= N;
  return !last && whole && work.steps > CHUNK_STEP(CHUNKS - 1);
}

INLINE uint place_of(const stages_t stages, const int stage, const int part, const int chunk)
{
  return stages.tiles + (chunk == 1 ? stage : STAGES) * BLOCK_BYTES + part * CHUNK_BYTES;
}

/* Leaves two chunks, and keeps the others in `held`. `stage`: the one that was multiplied last. */
INLINE void leave_results(
    const stages_t stages, const int stage, const int part, const piece_t piece, const sum_t *acc, sum_t *held, RESULT_ARGS)
{
  const int i = piece.origin.s0 + 64 * part, j = piece.origin.s1;
  meet(ROOM(part), MEMBERS);
  leave_chunk(place_of(stages, stage, part, 0), acc, CHUNK_COLUMNS, 0, i, j, RESULT);
  meet(FREE, TWO_QUARTETS);
  leave_chunk(place_of(stages, stage, part, 1), acc + CHUNK_SUMS, CHUNK_COLUMNS, 0, i, j + CHUNK_COLUMNS, RESULT);
  announce(LEFT(part), MEMBERS);
  UNROLL for (int n = 2 * CHUNK_SUMS; n < BN / 2; ++n) held[n] = acc[n];
}

/* Leaves a chunk of `held`, of results of 4 bytes, if this is its step of the next tile. */
INLINE void leave_held(const stages_t stages, const int part, const sum_t *held, const int step, RESULT_ARGS)
{
  UNROLL for (int chunk = 2; chunk < CHUNKS; ++chunk)
    if (step == CHUNK_STEP(chunk)) {
      meet(ROOM(part), MEMBERS);
      leave_chunk(place_of(stages, 0, part, chunk), held + CHUNK_SUMS * chunk, CHUNK_COLUMNS, 0, 0, 0, RESULT);
      announce(LEFT(part), MEMBERS);
    }
}

/* A word of results. One of 4 bytes is given as the bits of its sum. */
INLINE uint result_bits(const uint bits, RESULT_ARGS)
{
#if OUT_16
  return bits;
#else
  const union { uint bits; sum_t value; } sum = {bits};
  union { OUT_T value; uint bits; } result;
  STORE_OUT(&result.value, 0, finished_at(0, 0, (ACC_T)sum.value, RESULT));
  return result.bits;
#endif
}

/* Stores a chunk from row i and column j of out on. A sub-group calls this. */
INLINE void drain_chunk(const uint chunk, const int i, const int j, RESULT_ARGS)
{
  const int lane = get_local_id(0) % 32;
  out += (i + lane / 16) * ldo + j + lane % 16 * (16 / OUT_WIDTH);
  UNROLL for (int first = 0; first < 64; first += 2 * AT_ONCE) {
    uint4 sums[AT_ONCE];
    UNROLL for (int n = 0; n < AT_ONCE; ++n) {
      const int line = first + 2 * n + lane / 16;
      sums[n] = load_four(chunk + line * 256 + ((lane % 16 ^ turned(line)) * 16));
    }
    UNROLL for (int n = 0; n < AT_ONCE; ++n, out += 2 * ldo)
      *(__global uint4 *)out = (uint4)(result_bits(sums[n].s0, RESULT), result_bits(sums[n].s1, RESULT),
                                       result_bits(sums[n].s2, RESULT), result_bits(sums[n].s3, RESULT));
  }
}

/* Stores what a quartet leaves. A sub-group calls this. */
INLINE void drain(
    const int part, const work_t work, const stages_t stages, __global const long *batch_offsets, RESULT_ARGS)
{
  const int pieces = pieces_of(work), groups = piece_step();
  __global OUT_T *all = out;
  ring_t ring = {0, 0};
  for (int number = first_piece(); number < pieces; number += groups) {
    const piece_t piece = piece_at(number, work);
    ring = advanced(ring, piece.end - piece.first);
    if (!drains(piece, number, work, M, N)) continue;
    const int stage = (ring.stage + STAGES - 1) % STAGES, row = piece.origin.s0 + 64 * part;
    out = all + BATCH_OFFSET_OF(batch_offsets, BATCH_ENTRY + piece.layer, 3);
    for (int n = 0; n < CHUNKS; ++n) {
      const int chunk = n < 2 ? 1 - n : n, column = piece.origin.s1 + CHUNK_COLUMNS * chunk;
      if (n != 1) {
        announce(ROOM(part), MEMBERS);
        meet(LEFT(part), MEMBERS);
      }
      const uint from = place_of(stages, stage, part, chunk);
      if (SWAPPED) drain_chunk(from, column, row, RESULT);
      else drain_chunk(from, row, column, RESULT);
      if (chunk != 1) continue;
      stores_fence();
      sub_group_barrier();
      UNROLL for (int n = 0; n < 4; ++n) release(stages, stage); /* for the quartet's sub-groups */
    }
  }
}

/* A quartet's part of all tiles of this work-group. */
INLINE void multiply(
    const int quartet, const work_t work, const stages_t stages, __global const long *batch_offsets, RESULT_ARGS)
{
  /* --- Prologue. `held`: sums of the tile before that are still in registers. --- */
  const int part = quartet - 1;
  const int pieces = pieces_of(work), groups = piece_step();
  const uint rows = place_of_rows(part);
  ring_t ring = {0, 0};
  uint left[4][4 * FRAGMENTS]; /* used only with LEFT_REGISTERS */
  wgmma_acc held[ACCS];
  bool holds = false;
  more_registers();
  for (int number = first_piece(); number < pieces; number += groups) {
    const piece_t piece = piece_at(number, work);
    wgmma_acc acc[ACCS];
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;

    /* --- Main loop: at some steps a part of the held sums leaves --- */
    int last = -1;
    for (int step = piece.first; step < piece.end; ++step) {
      multiply_stage(acc, left, rows, stages, ring, last);
      last = ring.stage;
      ring = advanced(ring, 1);
      leave_held(stages, part, held, holds ? step - piece.first : -1, RESULT);
    }
    UNROLL for (int f = 0; f < FRAGMENTS; ++f) wgmma_wait(acc + f * WGMMA_ACC);

    /* --- Epilogue: through local memory, or from registers --- */
    holds = drains(piece, number, work, M, N);
    if (holds) {
      leave_results(stages, last, part, piece, acc, held, RESULT);
      continue;
    }
    if (last >= 0) release(stages, last);
    store_product(acc, piece, part, stages, batch_offsets, RESULT);
  }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma(
    GEMM_ARGS, OPERAND_STRIDES, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int split_k,
    const int stack)
{
  __local uchar tiles[STAGES * BLOCK_BYTES + 2 * CHUNK_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] ALIGNED(128);

  /* --- Operands and barriers --- */
  const long z = BATCH_ENTRY;
  const int quartet = get_local_id(0) / 128;
  const work_t work = work_of(M, N, K, BLOCK_K, stack, whole, split_k);
  const stages_t stages = stages_in(tiles, bars);
  const feeder_t feeder = begin_stages_of(stages, maps, work, scratch, z, stack, OPERANDS);
  out += out_offset;
  EXTRAS_BEGIN(0, 0);

  /* --- Copies by sub-groups 0 and 1 of quartet 0. Its others store what quartets leave. --- */
  if (quartet == 0) {
    fewer_registers();
    if (feeder.sub_group >= 2) drain(feeder.sub_group - 2, work, stages, BATCH_OFFSETS, RESULT);
    feed(feeder, work, stages);
  } else {
    multiply(quartet, work, stages, BATCH_OFFSETS, RESULT);
  }
  meet_members(); /* nobody ends whose barriers others still arrive at */
}
