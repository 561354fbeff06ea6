/* wgmma_fragments: out = A B for a few rows of A and affine weights of 4 or 8 bits in the order of fragments, on the matrix units of
 * sm_90a. Slices, quartets and out are as in wgmma_quantized.cl. But a step's weights lie behind one another in memory
 * (fragment_blocks.h), so one work-item, of a sub-group of its own, starts all copies by the copy engine:
 *
 *     feeder    | weights of stage 0, pairs | A of stage 0, weights and A of 1, .. |  a stage whenever one is empty ..
 *     quartets  | (RESIDENT: A)  judge the pairs                                   |  wait until one is full, convert, multiply, release ..
 *
 * and `ldmatrix` gives each work-item its own weights, as wgmma wants them: t has 8 e + 2 t and the next one, e = 0 .. 15.
 *
 * RESIDENT 1: A of a range of K is stored in local memory before the first step; 0: with the weights, as one box of a tensor map.
 * A step has two groups of wgmma. While one runs the other's weights are converted.
 *
 * Macros: BM 8, 16, 32, 64, 128; BN, 16 times TEAMS, a multiple of 64; SLICES; RESIDENT; STAGES, 2 or more; STEPS, most steps of a
 * range; those of weights.h and gemm.h. Work-group (tile, range): K from range * k_range. `maps`: with RESIDENT 0 a slot of
 * ptx_map.h for each work-group.
 * Preconditions: A is stored along K in rows on multiples of 16 bytes; K and k_range are multiples of DEPTH, and those of k_range
 * pairs of a column are a multiple of 16 bytes.
 * Technique: weights shuffled offline into blocks of what a step takes, as in Marlin and Machete; a sub-group for copies, as in CUTLASS.
 */
#define CLUSTER 1
#define IN_BLOCKS 1
#define FEEDERS 32
#include "include/gemm.h"
#include "nvidia/fragment_blocks.h"
#include "nvidia/held_parts.h"

/* Local memory: A of all steps or of STAGES, weights of STAGES steps, pairs */
#define ALL_BYTES (PAIRS_AT + BLOCKS * PAIRS_BYTES)
#define LOCAL_BYTES (ALL_BYTES > SUMS_BYTES ? ALL_BYTES : SUMS_BYTES)

/* The runs of two columns, whose weights are at `from` and whose pairs at `pairs`. */
INLINE void take_runs(run_t runs[2 * SPANS], const uint from, const uint pairs, const int group)
{
  uint words[2][BITS];
  take_weights(words, from);
  UNROLL for (int n = 0; n < 2; ++n) {
    UNROLL for (int z = 0; z < SPANS; ++z) {
      run_t *run = runs + n * SPANS + z;
      UNROLL for (int w = 0; w < BITS; ++w) run->words[w] = words[n][w];
      take_pair(run, pairs + z * group + n * 8 * PAIR_BYTES);
    }
  }
}

/* sum += products of a quartet's runs with A of its slice, which lies at `slice`. Without `top` its sub-groups may have other
 * modes, but must meet at wgmma. RESIDENT 0: releases stage `before`, if any. */
INLINE void multiply_runs(
    float *sum, run_t runs[2 * SPANS], const uint slice, const stages_t stages, const int before, const bool top)
{
  const int mode = top ? TOP_MODE : mode_of(runs, 2 * SPANS);
  const uint tile = held_tile((uint)first_ones(slice));
  UNROLL for (int n = 0; n < 2 * SPANS; ++n) ready_run(runs + n, mode);
  UNROLL for (int part = 0; part < 2; ++part) {
    uint w[2][8];
    convert_part(w, runs, part, mode);
    multiply_part(sum, w, tile, part);
    wgmma_wait_all_but(1); /* until then the registers that the next part is converted into may be read */
    if (!RESIDENT && part == 0 && before >= 0) release(stages, before);
  }
}

/* A sub-group's products of the whole range. */
INLINE void multiply_range(float *sum, const stages_t stages, place_t at, const int steps, const bool top)
{
  ring_t ring = {0, 0};
  int before = -1;
  for (int step = 0; step < steps; ++step) {
    run_t runs[2 * SPANS];
    wait_until_full(stages, ring);
    take_runs(runs, at.runs + ring.stage * RUNS_BYTES, at.pairs, at.group);
    if (RESIDENT) release(stages, ring.stage);
    const uint slice = stages.tiles + (RESIDENT ? step : ring.stage) * A_BYTES + SLICE * (2 * BOX_BYTES);
    multiply_runs(sum, runs, slice, stages, before, top);
    before = ring.stage;
    ring = ahead_by(ring, 1);
    at.pairs += STEP / GROUP_SIZE * at.group;
  }
  wgmma_wait_held(sum);
}

/* What the feeder copies next of a range of K: rows of A from m0 on, at k; weights of each block, of which `left` bytes are left. */
typedef struct {
  __global const ulong *map; /* of A */
  int m0, k;
  __global const uchar *next[BLOCKS];
  int left[BLOCKS], step[BLOCKS]; /* bytes */
} feeding_t;

/* Of `slices` slices from k0 on and B's columns from j0 on. */
INLINE feeding_t feeding(
    __global const ulong *map, __global const uchar *b, const long ldb, const int m0, const int j0, const int N, const int k0,
    const int slices)
{
  feeding_t fed = {map, m0, k0};
  UNROLL for (int block = 0; block < BLOCKS; ++block) {
    const int bytes = columns_of(j0, block, N) * COLUMN_BYTES;
    fed.next[block] = b + (j0 + block * BLOCK) * ldb + (long)(k0 / DEPTH) * bytes;
    fed.left[block] = slices * bytes;
    fed.step[block] = SLICES * bytes;
  }
  return fed;
}

/* Starts the copies of a step's weights into the stage at `ring`, once that is empty. A's bytes count too. Addresses and lengths are
 * known before the wait: what follows it delays the copies. */
INLINE void feed_weights(const stages_t stages, feeding_t *fed, const ring_t ring)
{
  int bytes[BLOCKS], all = RESIDENT ? 0 : A_BYTES;
  UNROLL for (int block = 0; block < BLOCKS; ++block) all += bytes[block] = min(fed->step[block], fed->left[block]);
  const uint bar = begin_filling(stages, ring, all), to = stages.tiles + RUNS_AT + ring.stage * RUNS_BYTES;
  UNROLL for (int block = 0; block < BLOCKS; ++block) {
    if (bytes[block]) copy_bytes(to + block * BLOCK_BYTES, fed->next[block], bytes[block], bar);
    fed->next[block] += bytes[block];
    fed->left[block] -= bytes[block];
  }
}

/* Starts that of A, of which the map has a layer for each 64 of K. */
INLINE void feed_rows(const stages_t stages, feeding_t *fed, const int stage)
{
  if (!RESIDENT) copy_box(stages.tiles + stage * A_BYTES, fed->map, 0, fed->m0, fed->k / 64, stages.full + 8 * stage);
  fed->k += STEP;
}

__kernel WORK_GROUP(ITEMS + FEEDERS, 1, 1) void matmul_wgmma_fragments(
    GEMM_ARGS, const int k_range, __global ulong *maps, __global float *partial, __global int *arrived)
{
  __local uchar memory[LOCAL_BYTES + 16] ALIGNED(1024); /* launches by CUDA make it dynamic */
  __local ulong bars[2 * STAGES + 1];
  __local uint scratch[32] ALIGNED(128);
  GEMM_BEGIN;
  const int tiles_m = (M + BM - 1) / BM;
  const int tile_n = tiles_m > 1 ? get_group_id(0) / tiles_m : get_group_id(0), j0 = tile_n * BN; /* a division takes long */
  const int m0 = ((int)get_group_id(0) - tile_n * tiles_m) * BM, rows = min(M - m0, BM);
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0, k_end = SPLIT ? min(K, k0 + k_range) : K;
  const int slices = (k_end - k0) / DEPTH, steps = (slices + SLICES - 1) / SLICES, groups = (k_end - k0) / GROUP_SIZE;
  const bool feeds = get_local_id(0) >= ITEMS;
  float sum[MT][4];
  UNROLL for (int j = 0; j < MT; ++j)
    UNROLL for (int e = 0; e < 4; ++e) sum[j][e] = 0;

  /* --- The first copies --- */
  const stages_t stages = stages_in(memory, bars);
  const uint has_pairs = stages.full + 16 * STAGES;
  __global ulong *map =
      RESIDENT ? maps : maps + MAP_SLOT * ((BATCH_ENTRY * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0));
  feeding_t fed = feeding(map, b, ldb, m0, j0, N, k0, slices);
  if (feeds) {
    const ulong about = RESIDENT ? 0 : word_about(map, 0);
    if (OWN_LANE == 0) {
      mbarrier_init(has_pairs, 1);
      begin_stages(stages, 1, ITEMS / 32);
      feed_weights(stages, &fed, (ring_t){0, 0});
      copy_pairs(stages.tiles, b, ldb, j0, N, K, k0, groups, has_pairs);
    }
    if (!RESIDENT) {
      fetch_map(map);
      const map_t of_a = {(__global const uchar *)a, 64, M, K / 64, lda * 2, 128, 64, BM, 2 * SLICES};
      keep_map(map, 0, scratch, of_a, 128, about);
    }
    if (OWN_LANE == 0) feed_rows(stages, &fed, 0);
    for (int step = 1; step < min(steps, STAGES) && OWN_LANE == 0; ++step) {
      feed_weights(stages, &fed, (ring_t){step, 0});
      feed_rows(stages, &fed, step);
    }
  } else {
#if RESIDENT
    move_chunks(chunks_of(a + m0 * lda, lda, rows, k0), memory, steps, k0 + SLICE * DEPTH, k_end);
    stores_fence();
#endif
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  mbarrier_wait(has_pairs, 0);
  bool top = false;
#if TOP_MODE
  top = all_of_group(feeds || all_top(memory, j0, N, groups));
#endif

  /* --- Steps --- */
  if (feeds) {
    ring_t ring = {0, 1};
    for (int step = STAGES; step < steps && OWN_LANE == 0; ++step) {
      feed_weights(stages, &fed, ring);
      feed_rows(stages, &fed, ring.stage);
      ring = ahead_by(ring, 1);
    }
    sub_group_barrier();
  } else {
    const int own_steps = (slices - SLICE + SLICES - 1) / SLICES;
    if (TOP_MODE && top) multiply_range(sum[0], stages, place_in(stages.tiles, j0, N), own_steps, true);
    else multiply_range(sum[0], stages, place_in(stages.tiles, j0, N), own_steps, false);
  }
  __local float *sums = (__local float *)memory;
  leave_slice(sums, sum[0], 1, TEAM * 16);
  finish_tile(sums, rows, m0, j0, partial, arrived, (__local int *)(memory + LOCAL_BYTES), RESULT);
}
