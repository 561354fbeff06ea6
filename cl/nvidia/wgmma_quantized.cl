/* wgmma_quantized: out = A B for a few rows of A and quantised weights, on the matrix units of sm_90a. As mma_quantized.cl, but
 * wgmma takes the weights from registers and A from local memory, and the weights come through local memory.
 *
 *                     k ->  slice 0       slice 1                A sub-group has 16 columns of B and every SLICES-th
 *                       +-------------+-------------+--          block of DEPTH values of k. Four sub-groups, a quartet,
 *   B, team 0   j, g    | t0 t1 t2 t3 | t0 t1 t2 t3 | ..         multiply the same slice: 64 columns of B. Work-item
 *               j+8, g  | t0 t1 t2 t3 | ..                       4 g + t has 32 weights of columns g and g + 8, a run.
 *      team 1           |   ..
 *                       +-------------+-------------+--
 *   A                   | BM rows, in local memory                      out^T = B^T A^T: weights are the rows of wgmma
 *
 * RESIDENT 1: A of a range of K is stored in local memory before the first step. The order of k within wgmma is any that both
 * operands have: t's run are neighbours, as drawn, and the same work-item's four elements of a step of 16 are 32 t + 2 p and
 * the next one, p = 2 s and 2 s + 1. So elements of A move as pairs.
 * RESIDENT 0: the copy engine brings A as it is, in stages (stages.h). Then t has 8 e + 2 t and the next one, e = 0 .. 15, and
 * bytes of weights move in registers.
 *
 * A step is DEPTH values of k of each slice. Weights of STAGES - 1 steps are on their way to local memory: those that a sub-group
 * copies for itself, so none waits for others. All 32 work-items copy neighbouring parts to neighbouring places: else each copy
 * takes several times as long (docs/quantised_kernels.md). If the highest mode of weights.h serves all scales and biases
 * of the range of K (scales.h), the loop has no other.
 *
 * Macros: BM 8, 16, 32, 64, 128; BN, 16 times TEAMS, a multiple of 4; SLICES; RESIDENT; STAGES, 2 or more, 3 if RESIDENT is 0;
 * STEPS, most steps of a range; those of weights.h and gemm.h. Work-group (tile, range): K from range * k_range. `maps`: with
 * RESIDENT 0 a slot of ptx_map.h for each work-group.
 * Preconditions: A is stored along K in rows on multiples of 16 bytes; K and k_range are multiples of DEPTH.
 * Technique: wgmma with converted weights in registers as in Marlin and Machete.
 */
#define CLUSTER 1
#include "include/gemm.h"
#include "nvidia/held_parts.h"
#include "nvidia/runs.h"
#include "nvidia/scales.h"

/* Local memory: A of all steps or of STAGES, weights of STAGES steps, scales */
#define ALL_BYTES (SCALES_AT + SCALES_BYTES)
#define LOCAL_BYTES (ALL_BYTES > SUMS_BYTES ? ALL_BYTES : SUMS_BYTES)

/* The runs of two columns of a step, whose weights are at `from` and whose groups are `groups` after the first of the range. Run
 * n SPANS + z has the scale of span z of column n. */
INLINE void take_runs(run_t runs[2 * SPANS], __local uchar *memory, const uint from, const int groups)
{
  const int own = groups + (SLICE * DEPTH + RESIDENT * (OWN_LANE % 4) * RUN) / GROUP_SIZE;
  uint words[2][BITS];
  take_weights(words, from);
  UNROLL for (int n = 0; n < 2; ++n) {
    UNROLL for (int z = 0; z < SPANS; ++z) {
      run_t *run = runs + n * SPANS + z;
      UNROLL for (int w = 0; w < BITS; ++w) run->words[w] = words[n][w];
      run->scale = *scale_at(memory, TEAM * 16 + OWN_LANE / 4 + 8 * n, own + z);
      run->bias = *scale_at(memory, TEAM * 16 + OWN_LANE / 4 + 8 * n, GROUPS + own + z);
    }
  }
}

/* sum += products of a quartet's runs with A of its slice, which lies at `slice`. Without `top` its sub-groups may have other
 * modes, but must meet at wgmma. RESIDENT 0: waits for the stage at `ring`, and releases stage `before`, if any. */
INLINE void multiply_runs(
    float *sum, run_t runs[2 * SPANS], const uint slice, const stages_t stages, const ring_t ring, const int before, const bool top)
{
  const int mode = top ? TOP_MODE : mode_of(runs, 2 * SPANS);
  const uint tile = held_tile((uint)first_ones(slice));
  UNROLL for (int n = 0; n < 2 * SPANS; ++n) ready_run(runs + n, mode);
  UNROLL for (int part = 0; part < 2; ++part) {
    uint w[2][8];
    convert_part(w, runs, part, mode);
    if (part == 0) {
      if (!RESIDENT) wait_until_full(stages, ring);
      wgmma_wait_held(sum);
      if (!RESIDENT && before >= 0) release(stages, before);
    }
    multiply_part(sum, w, tile, part);
  }
}

/* A sub-group's products of the whole range. */
INLINE void multiply_range(
    float *sum, __local uchar *memory, weights_t *weights, const stages_t stages, __global const ulong *map, const int m0,
    const int steps, const int own_k, const int k_end, const bool top)
{
  ring_t ring = {0, 0};
  int before = -1;
  for (int step = 0; step < steps; ++step) {
    const int k = own_k + step * STEP;
    copies_wait(STAGES - 2);
    sub_group_barrier(); /* all have copied this step, and read the one before */
    copy_runs(weights, stages.tiles + runs_at(ring.stage == 0 ? STAGES - 1 : ring.stage - 1), k + (STAGES - 1) * STEP < k_end);
#if !RESIDENT
    if (get_local_id(0) == 0 && step > 0 && step + STAGES - 2 < steps) /* where the step before the last one lay */
      fill_stage(stages, ahead_by(ring, STAGES - 2), map, m0, k + (STAGES - 2) * STEP);
#endif
    if (k < k_end) { /* all of a quartet, or none */
      run_t runs[2 * SPANS];
      wgmma_wait_all_but(1); /* until then the registers that part 0 is converted into may be read */
      take_runs(runs, memory, stages.tiles + runs_at(ring.stage), step * (STEP / GROUP_SIZE));
      const uint slice = stages.tiles + (RESIDENT ? step : ring.stage) * A_BYTES + SLICE * (2 * BOX_BYTES);
      multiply_runs(sum, runs, slice, stages, ring, before, top);
      before = ring.stage;
    }
    ring = ahead_by(ring, 1);
  }
  wgmma_wait_held(sum);
}

__kernel WORK_GROUP(ITEMS, 1, 1) void matmul_wgmma_quantized(
    GEMM_ARGS, const int k_range, __global ulong *maps, __global float *partial, __global int *arrived)
{
  __local uchar memory[LOCAL_BYTES + 16] ALIGNED(1024); /* launches by CUDA make it dynamic */
  __local ulong bars[2 * STAGES];
  GEMM_BEGIN;
  const int tiles_m = (M + BM - 1) / BM;
  const int tile_n = tiles_m > 1 ? get_group_id(0) / tiles_m : get_group_id(0), j0 = tile_n * BN; /* a division takes long */
  const int m0 = ((int)get_group_id(0) - tile_n * tiles_m) * BM, rows = min(M - m0, BM);
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0, k_end = SPLIT ? min(K, k0 + k_range) : K;
  const int steps = (k_end - k0 + STEP - 1) / STEP, own_k = k0 + SLICE * DEPTH;
  const int words = (k_end - k0) / GROUP_SIZE * BYTES_OF(SCALE_ELEMENT) / 4; /* of scales, a column's */

  /* --- The first copies: scales, weights, A --- */
  const stages_t stages = stages_in(memory, bars);
  copy_scales(stages.tiles, b, ldb, j0, N, k0, words, K);
  weights_t weights = weights_of(b, ldb, j0, N, own_k);
  UNROLL for (int step = 0; step < STAGES - 1; ++step)
    copy_runs(&weights, stages.tiles + runs_at(step), own_k + step * STEP < k_end);
  __global ulong *map = maps;
#if RESIDENT
  move_chunks(chunks_of(a + m0 * lda, lda, rows, k0), memory, steps, own_k, k_end);
#else
  __local uint scratch[32] ALIGNED(128);
  map += MAP_SLOT * ((BATCH_ENTRY * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0));
  if (get_local_id(0) == 32) begin_stages(stages, 1, ITEMS / 32);
  if (get_local_id(0) < 32) {
    const ulong about = word_about(map, 0);
    fetch_map(map);
    const map_t of_a = {(__global const uchar *)a, K, M, 1, lda * 2, lda * 2, 64, BM, 1};
    keep_map(map, 0, scratch, of_a, 128, about);
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  for (int step = 0; step < min(steps, STAGES - 1) && get_local_id(0) == 0; ++step)
    fill_stage(stages, (ring_t){step, 0}, map, m0, k0 + step * STEP);
#endif
  float sum[MT][4];
  UNROLL for (int j = 0; j < MT; ++j)
    UNROLL for (int e = 0; e < 4; ++e) sum[j][e] = 0;
  copies_wait(STAGES - 1);
  stores_fence();
  barrier(CLK_LOCAL_MEM_FENCE);
#if TOP_MODE
  if (all_of_group(all_top(memory, words)))
    multiply_range(sum[0], memory, &weights, stages, map, m0, steps, own_k, k_end, true);
  else
#endif
    multiply_range(sum[0], memory, &weights, stages, map, m0, steps, own_k, k_end, false);
  copies_wait(0);
  __local float *sums = (__local float *)memory;
  leave_slice(sums, sum[0], 1, TEAM * 16);
  finish_tile(sums, rows, m0, j0, partial, arrived, (__local int *)(memory + LOCAL_BYTES), RESULT);
}
