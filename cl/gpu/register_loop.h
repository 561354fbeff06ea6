/* The main loop of the `register` family: a work-group's tiles of A and B are multiplied step by step.
 *
 *   fetch    start copying the next tiles to local memory
 *   multiply for each k of a tile: read TM of A and TN of B into registers, acc(TM x TN) += a(TM) b(TN), while
 *            those of the next k are read
 *   land     wait for the next tile; barrier
 *   advance  to the next stage
 *
 * Macros: ASYNC_COPIES 0: tiles are staged in registers (register_held.h), 1: NVIDIA's asynchronous copies fill them
 * (register_nvidia.h); those of that header. Either has
 *   STAGES                      stages in local memory
 *   FETCH_STEP_A FETCH_STEP_B   the k of a step before which the loads of the next tiles are issued
 *   LEAD Stream DRAIN fetch_a fetch_b land_tile
 * Preconditions: BK / KS is even. If VEC_A > 1, A is stored with the accumulator's bits, each row as stored starts on
 * a multiple of 16 bytes, and its length is a multiple of CHUNK. B likewise.
 * Technique: register tiling over software-pipelined local tiles, as in every vendor library. The order of the
 * products (see multiply) is the fastest measured (docs/kernels/register.md).
 */
#include "include/gemm.h"
#include "include/chunk.h"
#include "gpu/register_tile.h"

#ifndef ASYNC_COPIES
#error "register_loop.h needs ASYNC_COPIES"
#elif ASYNC_COPIES
#include "gpu/register_nvidia.h"
#else
#include "gpu/register_held.h"
#endif

/* Reads one k of the tiles into registers. */
INLINE void read_fragments(
    ACC_T *fa, ACC_T *fb, __local const ACC_T *tile_a, __local const ACC_T *tile_b, const int k)
{
  UNROLL for (int r = 0; r < TM; r += CHUNK) {
    const chunk_t v = *(__local const chunk_t *)(tile_a + k * LINE_A + r * SG_ROWS);
    SPREAD(fa + r, v);
  }
  UNROLL for (int c = 0; c < TN; c += CHUNK) {
    const chunk_t v = *(__local const chunk_t *)(tile_b + k * LINE_B + c * SG_COLS);
    SPREAD(fb + c, v);
  }
}

/* Sums of whole numbers may be added in any order, and AMD's compiler (LLVM 21) computes the products of all k of a
 * tile before it adds them: 300 registers are spilled. An instruction of no bytes that takes and gives a sum keeps
 * them in order. */
#if defined(__AMDGCN__) && (SAME_TYPE(ACC_TYPE, uint32) || SAME_TYPE(ACC_TYPE, uint64))
#define IN_ORDER(x) __asm__("" : "+v"(x))
#else
#define IN_ORDER(x)
#endif

/* acc += fa fb, column by column, down and up in turn. The order decides how many registers an instruction can reuse
 * from the one before: on NVIDIA 50.2 instead of 44.7 TFLOP/s. */
INLINE void multiply(ACC_T (*acc)[TN], const ACC_T *fa, const ACC_T *fb)
{
  UNROLL for (int c = 0; c < TN; ++c) {
    UNROLL for (int i = 0; i < TM; ++i) {
      const int r = c % 2 ? TM - 1 - i : i;
      acc[r][c] = MAC(acc[r][c], fa[r], fb[c]);
      IN_ORDER(acc[r][c]);
    }
  }
}

INLINE int next_stage(const int stage)
{
  return stage + STAGE < STAGES * STAGE ? stage + STAGE : 0;
}

/* acc += the products of this work-group's tiles over `depth` of K. VECTORS: a CPU's compiler cuts the work-items' loops at
 * barriers. A barrier within an unrolled loop made them of each k, with the sums in memory (Intel's, 2026.2). */
INLINE void accumulate(
    ACC_T (*acc)[TN], Stream *stream, __local ACC_T *tiles, const Place p, const int depth)
{
#if VECTORS
  ACC_T fa[TM], fb[TN];
  fetch_a(stream, tiles);
  fetch_b(stream, tiles);
  land_tile(stream, tiles);
  barrier(CLK_LOCAL_MEM_FENCE);
  int now = 0; /* the stage that is multiplied */
  for (int k = 0; k < depth; k += BK) {
    fetch_a(stream, tiles);
    fetch_b(stream, tiles);
    UNROLL for (int kk = 0; kk < BK; ++kk) {
      read_fragments(fa, fb, tiles + now + p.row, tiles + now + TILE_A + p.col, kk);
      multiply(acc, fa, fb);
    }
    now = next_stage(now);
    land_tile(stream, tiles + now);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#else
  ACC_T fa[2][TM], fb[2][TN];
  for (int stage = 0; stage < LEAD; ++stage) {
    fetch_a(stream, tiles + stage * STAGE);
    fetch_b(stream, tiles + stage * STAGE);
  }
  land_tile(stream, tiles);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int at_a = p.slice * SLICE_K * LINE_A + p.row;
  const int at_b = p.slice * SLICE_K * LINE_B + p.col + TILE_A;
  read_fragments(fa[0], fb[0], tiles + at_a, tiles + at_b, 0);
  int now = 0, filled = LEAD * STAGE; /* the stage that is multiplied, the stage that is filled */
  for (int k = 0; k < depth; k += BK) {
    UNROLL for (int kk = 0; kk < SLICE_K; ++kk) {
      if (kk == FETCH_STEP_A) fetch_a(stream, tiles + filled);
      if (kk == FETCH_STEP_B) fetch_b(stream, tiles + filled);
      if (kk == SLICE_K - 1) {
        now = next_stage(now);
        filled = next_stage(filled);
        land_tile(stream, tiles + now);
        barrier(CLK_LOCAL_MEM_FENCE);
      }
      const int next = (kk + 1) % 2;
      read_fragments(fa[next], fb[next], tiles + now + at_a, tiles + now + at_b, (kk + 1) % SLICE_K);
      multiply(acc, fa[kk % 2], fb[kk % 2]);
    }
  }
#endif
}
