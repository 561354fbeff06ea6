/* wgmma_quantized: out = A B for a few rows of A and quantised weights, on the matrix units of sm_90a. As mma_quantized.cl, but
 * wgmma takes the weights from registers and A from local memory, and the weights come through local memory.
 *
 *                     k ->  slice 0       slice 1                A sub-group has 16 columns of B and every SLICES-th
 *                       +-------------+-------------+--          block of DEPTH values of k. Four sub-groups, a quartet,
 *   B, team 0   j, g    | t0 t1 t2 t3 | t0 t1 t2 t3 | ..         multiply the same slice: 64 columns of B.
 *               j+8, g  | t0 t1 t2 t3 | ..
 *      team 1           |   ..                                   Work-item 4 g + t reads runs of 32 weights: t of columns
 *                       +-------------+-------------+--          g and g + 8.
 *   A                   | BM rows, in local memory                      out^T = B^T A^T: weights are the rows of wgmma
 *
 * The order of k within wgmma is any that both operands have. Here t's four elements of a step of 16 are neighbours in its run:
 * k = 32 t + 2 p and the next one, of a row of A, lie in piece p of ptx_wgmma_held.h.
 *
 * A step is DEPTH values of k of each slice. RING - 1 of them are on their way to local memory: runs that a sub-group copies for
 * itself, so none waits for others. Scales and biases of the range of K are copied before the first step: later they would come
 * as four bytes of each of 32 lines. If the highest mode of weights.h serves all of them, the loop has no other.
 * RESIDENT 1: so is A. 0: a work-item loads its part of A two steps ahead, and stores it one step ahead, while others may still
 * multiply the step before.
 *
 * Macros: BM 8, 16, 32, 64, 128; BN, 16 times TEAMS, a multiple of 4; SLICES; RING, 2 or more, 3 if RESIDENT is 0; RESIDENT;
 * STEPS, most steps of a range; those of weights.h and gemm.h. Work-group (tile, range): K from range * k_range.
 * Preconditions: A is stored along K in rows on multiples of 16 bytes; K and k_range are multiples of DEPTH.
 * Technique: wgmma with converted weights in registers as in Marlin and Machete.
 */
#include "include/gemm.h"
#include "nvidia/ptx_wgmma_held.h"
#include "nvidia/weights.h"

#if !defined(RING) || !defined(RESIDENT) || !defined(STEPS)
#error "wgmma_quantized.cl needs RING RESIDENT STEPS"
#endif

/* A of a slice: 16 pieces, with gaps, so that a sub-group stores pairs of two rows to different banks. */
#define APART (BM * 16 + 16)
#define PIECE_AT(p) ((p) * APART + (p) / 4 * 32)
#define SLICE_BYTES (PIECE_AT(16))
#define A_BYTES (SLICES * SLICE_BYTES)
#define CHUNKS ((BM + 2 * TEAMS - 1) / (2 * TEAMS)) /* of 8 elements, that a work-item has of a slice */
/* Runs, in parts that are copied at once */
#if BITS % 4 == 0
#define PART_BYTES 16
typedef uint4 part_t;
#elif BITS % 2 == 0
#define PART_BYTES 8
typedef uint2 part_t;
#else
#define PART_BYTES 4
typedef uint part_t;
#endif
#define PARTS (4 * BITS / PART_BYTES)
#define RUNS_BYTES (2 * PARTS * ITEMS * PART_BYTES)
/* Scales of a column, then its biases */
#define GROUPS (STEPS * STEP / GROUP_SIZE)
#define COLUMN_BYTES (2 * GROUPS * BYTES_OF(SCALE_ELEMENT) + 4)
#define SCALES_BYTES ((BN * COLUMN_BYTES + 15) / 16 * 16)
/* Local memory: runs of RING steps, A of all steps or of RING, scales */
#define A_AT (RING * RUNS_BYTES)
#define SCALES_AT (A_AT + (RESIDENT ? STEPS : RING) * A_BYTES)
#define ALL_BYTES (SCALES_AT + SCALES_BYTES)
#define LOCAL_BYTES (ALL_BYTES > SUMS_BYTES ? ALL_BYTES : SUMS_BYTES)

/* What a work-item moves of A: chunk `OWN_LANE % 16` of every 2 TEAMS-th row of its slice. */
typedef struct {
  __global const A_T *next;
  long pitch; /* to its next row */
  int rows_left;
  uint place; /* of its first pair in a step's A */
} chunks_t;

INLINE chunks_t chunks_of(__global const A_T *a, const long lda, const int rows, const int k0)
{
  const int c = OWN_LANE % 16, row = 2 * TEAM + OWN_LANE / 16;
  const uint place = A_AT + SLICE * SLICE_BYTES + PIECE_AT(c % 4 * 4) + row * 16 + c / 4 * 4;
  return (chunks_t){a + row * lda + k0 + SLICE * DEPTH + 8 * c, 2 * TEAMS * lda, rows - row, place};
}

INLINE void load_chunks(uint4 held[CHUNKS], chunks_t *chunks, const bool wanted)
{
  UNROLL for (int p = 0; p < CHUNKS; ++p)
    if (wanted && chunks->rows_left > 2 * TEAMS * p) held[p] = *(__global const uint4 *)(chunks->next + p * chunks->pitch);
  chunks->next += STEP;
}

INLINE void store_chunks(const uint4 held[CHUNKS], const chunks_t *chunks, __local uchar *to)
{
  UNROLL for (int p = 0; p < CHUNKS; ++p)
    if (chunks->rows_left > 2 * TEAMS * p)
      UNROLL for (int e = 0; e < 4; ++e)
        *(__local uint *)(to + chunks->place + p * 2 * TEAMS * 16 + e * APART) = ((const uint *)&held[p])[e];
}

/* Moves A of the first `steps` steps, MANY at a time. */
#define MANY (8 / CHUNKS ? 8 / CHUNKS : 1)
INLINE void move_chunks(chunks_t *chunks, __local uchar *memory, const int steps, const int own_k, const int k_end)
{
  for (int first = 0; first < steps; first += MANY) {
    uint4 held[MANY][CHUNKS];
    UNROLL for (int i = 0; i < MANY; ++i)
      load_chunks(held[i], chunks, first + i < steps && own_k + (first + i) * STEP < k_end);
    UNROLL for (int i = 0; i < MANY; ++i)
      if (first + i < steps) store_chunks(held[i], chunks, memory + (first + i) * A_BYTES);
  }
  chunks->next -= ((steps + MANY - 1) / MANY * MANY - steps) * STEP;
}

/* Where its first parts of the runs of two columns are. */
typedef struct {
  __global const uchar *next[2];
} weights_t;

/* Four work-items copy neighbouring parts, which may be of another's run: else they would move each sector of the cache PARTS
 * times. */
INLINE void copy_runs(weights_t *weights, const uint to, const bool wanted)
{
  const int id = get_local_id(0), t = id % 4;
  UNROLL for (int n = 0; n < 2; ++n) {
    UNROLL for (int p = 0; p < PARTS; ++p) {
      const int part = 4 * p + t, owner = id - t + part / PARTS;
      copy_async(to + ((n * PARTS + part % PARTS) * ITEMS + owner) * PART_BYTES, weights->next[n] + p * 4 * PART_BYTES, PART_BYTES,
                 PART_BYTES, wanted);
    }
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

/* The runs of a step, `groups` after the first of its range. */
INLINE void take_runs(run_t runs[2], __local uchar *memory, const uint slot, const int groups)
{
  const int id = get_local_id(0), own = groups + (id / 32 / TEAMS * DEPTH + id % 4 * RUN) / GROUP_SIZE;
  UNROLL for (int n = 0; n < 2; ++n) {
    UNROLL for (int p = 0; p < PARTS; ++p) {
      const part_t part = *(__local const part_t *)(memory + slot + ((n * PARTS + p) * ITEMS + id) * PART_BYTES);
      UNROLL for (int w = 0; w < PART_BYTES / 4; ++w) runs[n].words[p * (PART_BYTES / 4) + w] = ((const uint *)&part)[w];
    }
    const int column = TEAM * 16 + id % 32 / 4 + 8 * n;
    runs[n].scale = *scale_at(memory, column, own);
    runs[n].bias = *scale_at(memory, column, GROUPS + own);
  }
}

INLINE void convert(uint w[2][8], const run_t runs[2], const int part, const int mode)
{
  UNROLL for (int s = 0; s < 2; ++s)
    UNROLL for (int n = 0; n < 2; ++n) eight(w[n] + 4 * s, runs + n, 2 * part + s, mode);
}

/* sum += products of a quartet's runs with its slice of A. Without `top` its sub-groups may have other modes, but must meet at
 * wgmma. */
INLINE void multiply_runs(float *sum, run_t runs[2], const ulong slice, const bool top)
{
  const int mode = top ? TOP_MODE : mode_of(runs, 2);
  UNROLL for (int n = 0; n < 2; ++n) ready_run(runs + n, mode);
  UNROLL for (int part = 0; part < 2; ++part) {
    uint w[2][8];
    if (mode == TOP_MODE) convert(w, runs, part, TOP_MODE);
    else if (mode) convert(w, runs, part, 1);
    else convert(w, runs, part, 0);
    wgmma_wait_held(sum);
    wgmma_fence();
    UNROLL for (int j = 0; j < 4; ++j) {
      const uint of[4] = {w[0][2 * j], w[1][2 * j], w[0][2 * j + 1], w[1][2 * j + 1]};
      wgmma_held(sum, of, slice + (ulong)(PIECE_AT(2 * (4 * part + j)) / 16));
    }
    wgmma_commit();
  }
}

/* A sub-group's products of the whole range. */
INLINE void multiply_range(
    float *sum, __local uchar *memory, weights_t *weights, chunks_t *chunks, const int steps, const int own_k, const int k_end,
    const bool top)
{
  const uint slots = local_address(memory);
  int slot = 0;
  uint4 held[CHUNKS];
  if (!RESIDENT) load_chunks(held, chunks, own_k + STEP < k_end);
  for (int step = 0; step < steps; ++step) {
    const int k = own_k + step * STEP, next = slot == RING - 1 ? 0 : slot + 1, last = slot == 0 ? RING - 1 : slot - 1;
    copies_wait(RING - 2);
#if RESIDENT
    sub_group_barrier(); /* all have copied this step, and read the one before */
#else
    stores_fence();
    barrier(CLK_LOCAL_MEM_FENCE);
    if (k + STEP < k_end) store_chunks(held, chunks, memory + next * A_BYTES);
    load_chunks(held, chunks, k + 2 * STEP < k_end);
#endif
    copy_runs(weights, slots + last * RUNS_BYTES, k + (RING - 1) * STEP < k_end);
    if (k < k_end) { /* all of a quartet, or none */
      run_t runs[2];
      take_runs(runs, memory, slot * RUNS_BYTES, step * (STEP / GROUP_SIZE));
      const uint slice = slots + A_AT + (RESIDENT ? step : slot) * A_BYTES + SLICE * SLICE_BYTES;
      multiply_runs(sum, runs, held_tile((uint)first_ones(slice), APART), top);
    }
    slot = next;
  }
  wgmma_wait_held(sum);
}

__kernel WORK_GROUP(ITEMS, 1, 1) void matmul_wgmma_quantized(
    GEMM_ARGS, const int k_range, __global float *partial, __global int *arrived)
{
  __local uchar memory[LOCAL_BYTES + 16] ALIGNED(128); /* one array: launches by CUDA make it dynamic */
  GEMM_BEGIN;
  const int tiles_m = (M + BM - 1) / BM;
  const int m0 = get_group_id(0) % tiles_m * BM, j0 = get_group_id(0) / tiles_m * BN, rows = min(M - m0, BM);
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0, k_end = SPLIT ? min(K, k0 + k_range) : K;
  const int steps = (k_end - k0 + STEP - 1) / STEP, own_k = k0 + SLICE * DEPTH;

  const uint slots = local_address(memory);
  copy_scales(slots, b, ldb, j0, N, k0, k_end, K);
  weights_t weights;
  UNROLL for (int n = 0; n < 2; ++n)
    weights.next[n] = b + min(j0 + TEAM * 16 + OWN_LANE / 4 + 8 * n, N - 1) * ldb + (long)(own_k / 8) * BITS + OWN_LANE % 4 * PART_BYTES;
  UNROLL for (int step = 0; step < RING - 1; ++step) copy_runs(&weights, slots + step * RUNS_BYTES, own_k + step * STEP < k_end);
  chunks_t chunks = chunks_of(a + m0 * lda, lda, rows, k0);
  move_chunks(&chunks, memory, RESIDENT ? steps : 1, own_k, k_end);
  float sum[MT][4];
  UNROLL for (int j = 0; j < MT; ++j)
    UNROLL for (int e = 0; e < 4; ++e) sum[j][e] = 0;
  copies_wait(RING - 1);
  stores_fence();
  barrier(CLK_LOCAL_MEM_FENCE);
#if TOP_MODE
  if (all_of_group(all_top(memory, (k_end - k0) / GROUP_SIZE)))
    multiply_range(sum[0], memory, &weights, &chunks, steps, own_k, k_end, true);
  else
#endif
    multiply_range(sum[0], memory, &weights, &chunks, steps, own_k, k_end, false);
  copies_wait(0);
  __local float *sums = (__local float *)memory;
  add_slices(sums, sum[0], 1, TEAM * 16);
#if SPLIT
  if (!add_ranges(sums, rows, (__local int *)(memory + LOCAL_BYTES), partial, arrived)) return;
#endif
  store_sums(sums, rows, m0, j0, RESULT);
}
