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
 * takes several times as long (docs/quantised_kernels.md). Scales and biases of the range of K are copied before the first step:
 * later they would come as four bytes of each of 32 lines. If the highest mode of weights.h serves all of them, the loop has no
 * other.
 *
 * Macros: BM 8, 16, 32, 64, 128; BN, 16 times TEAMS, a multiple of 4; SLICES; RESIDENT; STAGES, 2 or more, 3 if RESIDENT is 0;
 * STEPS, most steps of a range; those of weights.h and gemm.h. Work-group (tile, range): K from range * k_range. `maps`: with
 * RESIDENT 0 a slot of ptx_map.h for each work-group.
 * Preconditions: A is stored along K in rows on multiples of 16 bytes; K and k_range are multiples of DEPTH.
 * Technique: wgmma with converted weights in registers as in Marlin and Machete.
 */
#define CLUSTER 1
#include "include/gemm.h"
#include "nvidia/few_rows.h"
#include "nvidia/ptx_wgmma_held.h"
#include "nvidia/weights.h"

#ifndef STEPS
#error "wgmma_quantized.cl needs STEPS"
#endif

/* Weights of 16 columns and a slice: parts of 16 bytes, a column's side by side. */
#define TEAM_BYTES (16 * BITS * 16)
#define COPIES ((16 * BITS + 31) / 32) /* of a work-item */
#define RUNS_BYTES (ITEMS / 32 * TEAM_BYTES)
/* Scales of a column, then its biases */
#define GROUPS (STEPS * STEP / GROUP_SIZE)
#define COLUMN_BYTES (2 * GROUPS * BYTES_OF(SCALE_ELEMENT) + 4)
#define SCALES_BYTES ((BN * COLUMN_BYTES + 15) / 16 * 16)
#define SPANS (RESIDENT ? 1 : DEPTH / GROUP_SIZE) /* groups of a run */
/* Local memory: A of all steps or of STAGES, weights of STAGES steps, scales */
#define RUNS_AT ((RESIDENT ? STEPS : STAGES) * A_BYTES)
#define SCALES_AT (RUNS_AT + STAGES * RUNS_BYTES)
#define ALL_BYTES (SCALES_AT + SCALES_BYTES)
#define LOCAL_BYTES (ALL_BYTES > SUMS_BYTES ? ALL_BYTES : SUMS_BYTES)

/* The parts that a work-item copies: of its sub-group's 16 BITS every 32nd. */
typedef struct {
  __global const uchar *next[COPIES];
} weights_t;

INLINE weights_t weights_of(__global const uchar *b, const long ldb, const int j0, const int N, const int own_k)
{
  weights_t own;
  UNROLL for (int n = 0; n < COPIES; ++n) {
    const int part = OWN_LANE + 32 * n;
    own.next[n] = b + min(j0 + TEAM * 16 + part / BITS % 16, N - 1) * ldb + (long)(own_k / 8) * BITS + part % BITS * 16;
  }
  return own;
}

/* Where in local memory a sub-group's weights of a stage are. */
INLINE uint runs_at(const int stage) { return RUNS_AT + stage * RUNS_BYTES + get_local_id(0) / 32 * TEAM_BYTES; }

INLINE void copy_runs(weights_t *weights, const uint to, const bool wanted)
{
  UNROLL for (int n = 0; n < COPIES; ++n) {
    const int part = OWN_LANE + 32 * n;
    copy_async(to + part * 16, weights->next[n], 16, 16, wanted && part < 16 * BITS);
    weights->next[n] += STEP / 8 * BITS;
  }
  copies_commit();
}

/* The scales and biases of a range of K, from k0 on: element e of column j. */
INLINE __local scale_bits *scale_at(__local uchar *memory, const int j, const int e)
{
  return (__local scale_bits *)(memory + SCALES_AT + j * COLUMN_BYTES) + e;
}

/* Starts to copy them, four bytes at a time. */
INLINE void copy_scales(
    const uint slots, __global const uchar *b, const long ldb, const int j0, const int N, const int k0, const int k_end, const int K)
{
  const int nbytes = (k_end - k0) / GROUP_SIZE * BYTES_OF(SCALE_ELEMENT);
  for (int j = get_local_id(0) / 32; j < BN; j += ITEMS / 32) {
    __global const uchar *scales = b + min(j0 + j, N - 1) * ldb + (long)(K / 8) * BITS + k0 / GROUP_SIZE * BYTES_OF(SCALE_ELEMENT);
    for (int e = OWN_LANE * 4; e < nbytes; e += 128)
      UNROLL for (int which = 0; which < 2; ++which)
        copy_async(slots + SCALES_AT + j * COLUMN_BYTES + which * GROUPS * BYTES_OF(SCALE_ELEMENT) + e,
                   scales + which * (K / GROUP_SIZE * BYTES_OF(SCALE_ELEMENT)) + e, 4, 4, true);
  }
  copies_commit();
}

/* Whether the highest mode serves all of a work-item's share of `count` groups of each column. */
INLINE bool all_top(__local uchar *memory, const int count)
{
  bool top = true;
  for (int j = get_local_id(0) / 32; j < BN; j += ITEMS / 32)
    for (int e = OWN_LANE; e < count; e += 32) {
      run_t pair;
      pair.scale = *scale_at(memory, j, e);
      pair.bias = *scale_at(memory, j, GROUPS + e);
      top &= top_serves(&pair);
    }
  return top;
}

#if RESIDENT
/* Words of a run are read in parts. */
#if BITS % 4 == 0
typedef uint4 part_t;
#elif BITS % 2 == 0
typedef uint2 part_t;
#else
typedef uint part_t;
#endif

/* The weights 32 t .. of the 128 of a column that lie at `from`. */
INLINE void take_weights(uint *words, __local const uchar *from, const int t)
{
  const int each = sizeof(part_t) / 4;
  UNROLL for (int w = 0; w < BITS; w += each) {
    const part_t part = *(__local const part_t *)(from + t * (4 * BITS) + w * 4);
    UNROLL for (int i = 0; i < each; ++i) words[w + i] = ((const uint *)&part)[i];
  }
}
#else
/* Of 128 weights of a column, which lie at `from`, 8 e + 2 t and 8 e + 2 t + 1, e = 0 .. 15. */
INLINE void take_weights(uint *words, __local const uchar *from, const int t)
{
  uint all[4 * BITS];
  UNROLL for (int part = 0; part < BITS; ++part) {
    const uint4 four = *(__local const uint4 *)(from + part * 16);
    UNROLL for (int w = 0; w < 4; ++w) all[4 * part + w] = ((const uint *)&four)[w];
  }
#if BITS == 4 || BITS == 8
  const uint which = BITS == 4 ? 0x40 + 0x11 * t : 0x10 + 0x22 * t; /* bytes of two words */
  UNROLL for (int w = 0; w < BITS; ++w)
    words[w] = chosen_bytes(
        chosen_bytes(all[4 * w], all[4 * w + 1], which), chosen_bytes(all[4 * w + 2], all[4 * w + 3], which), 0x5410);
#else
  UNROLL for (int w = 0; w < BITS; ++w) words[w] = 0;
  UNROLL for (int e = 0; e < 16; ++e) {
    const int at = 8 * BITS * e, to = 2 * BITS * e; /* bits */
    const ulong eight = all[at / 32] | (ulong)all[min(at / 32 + 1, 4 * BITS - 1)] << 32;
    const uint pair = (uint)(eight >> (at % 32 + 2 * BITS * t)) & ((1u << 2 * BITS) - 1);
    words[to / 32] |= pair << to % 32;
    if (to % 32 + 2 * BITS > 32) words[to / 32 + 1] |= pair >> (32 - to % 32) % 32;
  }
#endif
}
#endif

/* The runs of two columns of a step, whose weights are at `from` and whose groups are `groups` after the first of the range. Run
 * n SPANS + z has the scale of span z of column n. */
INLINE void take_runs(run_t runs[2 * SPANS], __local uchar *memory, const uint from, const int groups)
{
  const int t = OWN_LANE % 4, own = groups + (SLICE * DEPTH + RESIDENT * t * RUN) / GROUP_SIZE;
  UNROLL for (int n = 0; n < 2; ++n) {
    const int column = OWN_LANE / 4 + 8 * n;
    UNROLL for (int z = 0; z < SPANS; ++z) {
      run_t *run = runs + n * SPANS + z;
      take_weights(run->words, memory + from + column * (16 * BITS), t);
      run->scale = *scale_at(memory, TEAM * 16 + column, own + z);
      run->bias = *scale_at(memory, TEAM * 16 + column, GROUPS + own + z);
    }
  }
}

INLINE void convert(uint w[2][8], const run_t runs[2 * SPANS], const int part, const int mode)
{
  UNROLL for (int s = 2 * part; s < 2 * part + 2; ++s)
    UNROLL for (int n = 0; n < 2; ++n) eight(w[n] + s % 2 * 4, runs + n * SPANS + s * SPANS / 4, s, mode);
}

/* sum += products of a quartet's runs with A of its slice, which lies at `slice`. Without `top` its sub-groups may have other
 * modes, but must meet at wgmma. RESIDENT 0: waits for the stage at `ring`, and releases stage `before`, if any. */
INLINE void multiply_runs(
    float *sum, run_t runs[2 * SPANS], const uint slice, const stages_t stages, const ring_t ring, const int before, const bool top)
{
  const int mode = top ? TOP_MODE : mode_of(runs, 2 * SPANS);
  UNROLL for (int n = 0; n < 2 * SPANS; ++n) ready_run(runs + n, mode);
  UNROLL for (int part = 0; part < 2; ++part) {
    uint w[2][8];
    if (mode == TOP_MODE) convert(w, runs, part, TOP_MODE);
    else if (mode) convert(w, runs, part, 1);
    else convert(w, runs, part, 0);
    if (!RESIDENT && part == 0) wait_until_full(stages, ring);
    wgmma_wait_held(sum);
    if (!RESIDENT && part == 0 && before >= 0) release(stages, before);
    wgmma_fence();
    const ulong box = held_tile((uint)first_ones(slice + part * BOX_BYTES));
    UNROLL for (int j = 0; j < 4; ++j) {
      const uint of[4] = {w[0][2 * j], w[1][2 * j], w[0][2 * j + 1], w[1][2 * j + 1]};
      wgmma_held(sum, of, box + (ulong)(2 * j));
    }
    wgmma_commit();
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
    const int k = own_k + step * STEP, filled = step + STAGES - 2;
    copies_wait(STAGES - 2);
    sub_group_barrier(); /* all have copied this step, and read the one before */
    copy_runs(weights, stages.tiles + runs_at(ring.stage == 0 ? STAGES - 1 : ring.stage - 1), k + (STAGES - 1) * STEP < k_end);
#if !RESIDENT
    if (get_local_id(0) == 0 && step > 0 && filled < steps) /* where the step before the last one lay */
      fill_stage(stages, ahead_by(ring, STAGES - 2), map, m0, own_k + filled * STEP);
#endif
    if (k < k_end) { /* all of a quartet, or none */
      run_t runs[2 * SPANS];
      take_runs(runs, memory, runs_at(ring.stage), step * (STEP / GROUP_SIZE));
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
  __local uint scratch[32] ALIGNED(128);
  GEMM_BEGIN;
  const int tiles_m = (M + BM - 1) / BM;
  const int m0 = get_group_id(0) % tiles_m * BM, j0 = get_group_id(0) / tiles_m * BN, rows = min(M - m0, BM);
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0, k_end = SPLIT ? min(K, k0 + k_range) : K;
  const int steps = (k_end - k0 + STEP - 1) / STEP, own_k = k0 + SLICE * DEPTH;

  /* --- The first copies: scales, weights, A --- */
  const stages_t stages = stages_in(memory, bars);
  copy_scales(stages.tiles, b, ldb, j0, N, k0, k_end, K);
  weights_t weights = weights_of(b, ldb, j0, N, own_k);
  UNROLL for (int step = 0; step < STAGES - 1; ++step)
    copy_runs(&weights, stages.tiles + runs_at(step), own_k + step * STEP < k_end);
  __global ulong *map = maps;
#if RESIDENT
  move_chunks(chunks_of(a + m0 * lda, lda, rows, k0), memory, steps, own_k, k_end);
#else
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
  if (all_of_group(all_top(memory, (k_end - k0) / GROUP_SIZE)))
    multiply_range(sum[0], memory, &weights, stages, map, m0, steps, own_k, k_end, true);
  else
#endif
    multiply_range(sum[0], memory, &weights, stages, map, m0, steps, own_k, k_end, false);
  copies_wait(0);
  __local float *sums = (__local float *)memory;
  add_slices(sums, sum[0], 1, TEAM * 16);
#if SPLIT
  if (!add_ranges(sums, rows, (__local int *)(memory + LOCAL_BYTES), partial, arrived)) return;
#endif
  store_sums(sums, rows, m0, j0, RESULT);
}
