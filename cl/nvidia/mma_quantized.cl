/* mma_quantized: out = A B for a few rows of A and quantised weights, on the matrix units of sm_80 and later. Each weight is
 * read once for BM rows of A and becomes a 16-bit number in registers.
 *
 *                     k ->  slice 0       slice 1                A sub-group has SGN columns of B and every SLICES-th
 *                       +-------------+-------------+--          block of DEPTH values of k. Its work-item 4 g + t
 *   B, team 0   j, g    | t0 t1 t2 t3 | t0 t1 t2 t3 | ..         reads runs of 32 weights: t of columns g, g + 8, ...
 *      SGN      j+8, g  | t0 t1 t2 t3 | ..
 *      team 1           |   ..
 *                       +-------------+-------------+--
 *   A                   | BM rows, in local memory                      out^T = B^T A^T: weights are the rows of mma
 *
 * The order of k within mma is any that both operands have. Here t's four elements of a step are neighbours in its run:
 *   16 bytes of A: row 8 j + g, k = 32 t + 8 s ..    at ((s MT + j) 32 + 4 g + t) 16 of the slice, as they are read
 *
 * slices.h adds up slices and ranges.
 *
 * Macros: BM 8, 16, 32, 64; BN, TEAMS times SGN; SGN 16, 32; SLICES; STAGES 2 or more; AHEAD, steps that weights are loaded
 * ahead; SPLIT; BITS, of an affine weight, else 0; if 0, BYTES_OF_256, what 256 weights take of a row; those of weights.h and gemm.h;
 * those of the format, whose header comes before. Work-group (tile, range): K from range * k_range, a multiple of DEPTH.
 * Preconditions: A is stored along K in rows on multiples of 16 bytes; K is a multiple of 32.
 */
#include "include/gemm.h"
#include "nvidia/ptx_mma.h"
#include "nvidia/weights.h"

#if !defined(SGN) || !defined(STAGES) || !defined(AHEAD) || (BITS == 0 && !defined(BYTES_OF_256))
#error "mma_quantized.cl needs SGN STAGES AHEAD BYTES_OF_256"
#endif
#define NT (SGN / 16)
#define SLICE_BYTES (BM * DEPTH * 2)
#define STAGE_BYTES (SLICES * SLICE_BYTES)
#define LOCAL_BYTES (STAGES * STAGE_BYTES > SUMS_BYTES ? STAGES * STAGE_BYTES : SUMS_BYTES)

/* --- Weights as pairs of A's type in registers. A work-item takes a run of 32 weights of a row, eight at a time.
 *
 *   run_t                               what is read ahead of a run
 *   read_run(run, row, k, K, end)       starts the loads of the run at k
 *   take_run(run, row, k, K, end)       before the run is used: zeros if k >= end
 *   mode_of, ready_run, eight           weights.h
 *
 * KEPT runs of a row are in registers at the same time. Of other weights than affine ones read_run only fetches the bytes, or
 * those near them, into the cache. Affine ones lie as a stream of fields of BITS bits, then scales, then biases. */
#if BITS == 0
#define TOP_MODE 0
#define KEPT 1
typedef struct { uint words[RUN / 2]; } run_t;

INLINE void read_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  prefetch_line(row + min(k, end - RUN) / RUN * BYTES_OF_256 / (256 / RUN));
}

INLINE void take_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  float16 low = (float16)(0), high = (float16)(0);
  if (k < end) weights32(row, k, K, &low, &high);
  const float16 halves[2] = {low, high};
  UNROLL for (int h = 0; h < 2; ++h) {
    const float *v = (const float *)&halves[h];
    UNROLL for (int i = 0; i < 8; ++i) run->words[8 * h + i] = PACKED(v[2 * i], v[2 * i + 1]);
  }
}

#define mode_of(runs, count) 0
#define ready_run(run, mode) ((void)0)
INLINE void eight(uint *words, const run_t *run, const int s, const int mode)
{
  UNROLL for (int i = 0; i < 4; ++i) words[i] = run->words[4 * s + i];
}
#else
#define KEPT AHEAD

/* Runs begin on multiples of 4 BITS bytes. */
INLINE void read_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  const int at = min(k, end - RUN);
  __global const uchar *from = row + (long)at / 8 * BITS;
#if BITS % 4 == 0
  UNROLL for (int w = 0; w < BITS; w += 4) read_once(run->words + w, from + 4 * w);
#else
  UNROLL for (int w = 0; w < BITS; ++w) run->words[w] = ((__global const uint *)from)[w];
#endif
  __global const scale_bits *scales = (__global const scale_bits *)(row + (long)K / 8 * BITS);
  run->scale = scales[at / GROUP_SIZE];
  run->bias = scales[(K + at) / GROUP_SIZE];
}

/* A condition on what read_run loads would wait for it there. */
INLINE void take_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  run->scale = k < end ? run->scale : 0;
  run->bias = k < end ? run->bias : 0;
}
#endif

/* --- A: a work-item copies pieces of 16 bytes of every 2 TEAMS-th row. Neighbouring work-items have a row's pieces, those of two
 * rows at once. Rows and columns of mma outside of A and out are whatever lies there. */
typedef struct {
  __global const A_T *next;
  long pitch; /* to its next row */
  int rows_left, k_left;
  uint place; /* of the first piece in a stage */
} Pieces;

INLINE Pieces pieces_of(__global const A_T *a, const long lda, const int m0, const int M, const int k0, const int k_end)
{
  const int t = OWN_LANE % 4, row = 2 * TEAM + OWN_LANE / 4 % 2, s = OWN_LANE / 8, k = k0 + SLICE * DEPTH + t * RUN + s * 8;
  const uint place = SLICE * SLICE_BYTES + (s * MT * 32 + row * 4 + t) * 16;
  return (Pieces){a + (m0 + row) * lda + k, 2 * TEAMS * lda, min(M - m0, BM) - row, k_end - k, place};
}

/* Copies the block that is next to `stage`, with zeros past the end of K. */
INLINE void copy_pieces(Pieces *pieces, const uint stage)
{
  UNROLL for (int p = 0; p < (BM / 2 + TEAMS - 1) / TEAMS; ++p)
    copy_async(stage + pieces->place + p * TEAMS * 128, pieces->next + p * pieces->pitch, 16, pieces->k_left > 0 ? 16 : 0,
               pieces->rows_left > 2 * TEAMS * p);
  copies_commit();
  pieces->next += STEP;
  pieces->k_left -= STEP;
}

/* sum += products of a sub-group's runs with its slice of A, which lies at `rows`. */
INLINE void multiply_runs(float sum[NT][MT][4], run_t runs[2 * NT], const uint rows, const int mode)
{
  UNROLL for (int n = 0; n < 2 * NT; ++n) ready_run(runs + n, mode);
  UNROLL for (int s = 0; s < 4; ++s) {
    uint w[2 * NT][4];
    UNROLL for (int n = 0; n < 2 * NT; ++n) eight(w[n], runs + n, s, mode);
    UNROLL for (int j = 0; j < MT; ++j) {
      const uint4 x = load_four(rows + ((s * MT + j) * 32 + OWN_LANE) * 16);
      const uint first[2] = {x.s0, x.s1}, second[2] = {x.s2, x.s3};
      UNROLL for (int n = 0; n < NT; ++n) {
        const uint low[4] = {w[2 * n][0], w[2 * n + 1][0], w[2 * n][1], w[2 * n + 1][1]};
        const uint high[4] = {w[2 * n][2], w[2 * n + 1][2], w[2 * n][3], w[2 * n + 1][3]};
        mma(sum[n][j], low, first);
        mma(sum[n][j], high, second);
      }
    }
  }
}

__kernel WORK_GROUP(ITEMS, 1, 1) void matmul_mma_quantized(
    GEMM_ARGS, const int k_range, __global float *partial, __global int *arrived)
{
  __local uchar memory[LOCAL_BYTES + 16] ALIGNED(128); /* one array: launches by CUDA make it dynamic */
  GEMM_BEGIN;
  const int tiles_m = (M + BM - 1) / BM;
  const int m0 = get_group_id(0) % tiles_m * BM, j0 = get_group_id(0) / tiles_m * BN;
  const int k0 = SPLIT ? get_group_id(1) * k_range : 0, k_end = SPLIT ? min(K, k0 + k_range) : K;
  const uint stages = local_address(memory);
  const int own_k = SLICE * DEPTH + OWN_LANE % 4 * RUN;
  __global const uchar *rows[2 * NT];
  UNROLL for (int n = 0; n < 2 * NT; ++n) rows[n] = b + min(j0 + TEAM * SGN + 8 * n + OWN_LANE / 4, N - 1) * ldb;

  run_t runs[KEPT][2 * NT];
  UNROLL for (int u = 0; u < AHEAD; ++u)
    UNROLL for (int n = 0; n < 2 * NT; ++n) read_run(&runs[u % KEPT][n], rows[n], k0 + u * STEP + own_k, K, k_end);
  Pieces pieces = pieces_of(a, lda, m0, M, k0, k_end);
  UNROLL for (int stage = 0; stage < STAGES - 1; ++stage) copy_pieces(&pieces, stages + stage * STAGE_BYTES);
  float sum[NT][MT][4];
  UNROLL for (int n = 0; n < NT; ++n)
    UNROLL for (int j = 0; j < MT; ++j)
      UNROLL for (int e = 0; e < 4; ++e) sum[n][j][e] = 0;
  int stage = 0;
  for (int k = k0; k < k_end; k += KEPT * STEP)
    UNROLL for (int u = 0; u < KEPT; ++u) {
      const int at = k + u * STEP;
      if (at < k_end) {
        copies_wait(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        copy_pieces(&pieces, stages + (stage == 0 ? STAGES - 1 : stage - 1) * STAGE_BYTES);
        UNROLL for (int n = 0; n < 2 * NT; ++n) take_run(&runs[u][n], rows[n], at + own_k, K, k_end);
        const uint slice = stages + stage * STAGE_BYTES + SLICE * SLICE_BYTES;
        const int mode = mode_of(runs[u], 2 * NT);
        if (mode == TOP_MODE) multiply_runs(sum, runs[u], slice, TOP_MODE);
        else if (mode) multiply_runs(sum, runs[u], slice, 1);
        else multiply_runs(sum, runs[u], slice, 0);
        UNROLL for (int n = 0; n < 2 * NT; ++n) read_run(&runs[u][n], rows[n], at + AHEAD * STEP + own_k, K, k_end);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
      }
    }
  copies_wait(0);
  __local float *sums = (__local float *)memory;
  const int count = min(M - m0, BM);
  leave_slice(sums, sum[0][0], NT, TEAM * SGN);
  finish_tile(sums, count, m0, j0, partial, arrived, (__local int *)(memory + LOCAL_BYTES), RESULT);
}
