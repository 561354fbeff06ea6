/* wgmma_split: out = A B on the matrix units of sm_90a, from operands that split.cl has packed.
 *
 *                        BN                quartet 0: feeders start the copies (wgmma_feeders.h)
 *      a block    +--------------+         BM 128: quartets 1 and 2 multiply 64 rows each
 *      of 128     | B            |         BM 64:  they multiply the same rows, every other round of K each
 *      bytes      +--------------+
 *     +------+    +--------------+         STAGES stages of BLOCKS blocks are in flight
 *  BM | A    |    | quartet 1    |
 *     |      |    | quartet 2    |
 *     +------+    +--------------+         work-group g computes tiles g, g + groups, ...
 *
 * SPLIT 1, 2: a block holds 64 bytes of hi and 64 bytes of lo of the same k. Three products are summed, the small ones
 *             first: hi lo + lo hi + hi hi.
 * SPLIT 0:    a block holds 128 bytes of K, and one product is summed.
 *
 * Matrix units truncate as they accumulate, so the error of a sum that stays there grows with K. Therefore they sum
 * only a round of ROUND stages, from zero, and the rounds are added in float32 registers. The quartets take turns: one
 * multiplies while the other adds. A quartet's turn ends when it has issued the last products of its round.
 *
 * Macros: BM 64, 128; BN (ptx_wgmma.h); STAGES, 2 or more; GROUP (tile_order.h); OUT_VECTOR (fragment.h);
 * SPLIT (split.h); ELEMENT, of the parts: float16 with SPLIT 1, else float32; SPLIT_K ACROSS_A ACROSS_B 0; WIDE_A WIDE_B
 * (split.h). `pitch`: elements of a packed row of A or column of B, hi and lo together.
 * Technique: as in wgmma.cl; parts: see split.h.
 */
#include "include/gemm.h"
#include "nvidia/ptx_wgmma.h"
#include "nvidia/split.h"
#include "nvidia/split_guard.h"
#include "nvidia/fragment.h"
#include "nvidia/wgmma_feeders.h"

#define BLOCKS 2 /* of a stage */
#define STAGE_BYTES (BLOCKS * BLOCK_BYTES)
#define PARTS (SPLIT ? 2 : 1)
#define BLOCK_DEPTH (BLOCK_K / PARTS) /* k of a block */
#define ROUND (PARTS == 2 ? 1 : 2)
#define WORK_ITEMS 384
#define SAME_ROWS (BM == 64)
#define OWNERS (SAME_ROWS ? 2 : 1) /* quartets that divide the rounds of a tile */
#define PRODUCTS (2 * PARTS - 1)
#define BLOCK_STEPS (4 / PARTS)
#define LO (64 / 16) /* from hi to lo, in the 16 bytes that wgmma_tile counts in */

/* --- Main loop: rounds of stages --------------------------------------------------------------------------------
 *
 * Issues the products of a stage once it is full. Unless `keep`, the first one starts the sums from zero. */
INLINE void multiply_stage(
    wgmma_acc *acc, const stages_t stages, const ring_t ring, const int rows, const int keep)
{
  const uint at = stages.tiles + ring.stage * STAGE_BYTES;
  wait_until_full(stages, ring);
  wgmma_fence();
  UNROLL for (int product = 0; product < PRODUCTS; ++product)
    UNROLL for (int block = 0; block < BLOCKS; ++block) {
      const uint tile = at + block * BLOCK_BYTES;
      const ulong a = wgmma_tile(tile + rows * ROWS_64, ROWS_64) + (PARTS == 2 && product == 1 ? LO : 0);
      const ulong b = wgmma_tile(tile + TILE_A, ROWS_64) + (PARTS == 2 && product == 0 ? LO : 0);
      UNROLL for (int step = 0; step < BLOCK_STEPS; ++step)
        wgmma(acc, a + step * WGMMA_STEP_A, b + step * WGMMA_STEP_B, product || block || step || keep);
    }
  wgmma_commit();
}

/* Named barriers of both quartets: 1 and 2, a quartet's turn; 3, sums are handed over. Of one quartet: 5 and 6.
 *
 * Sums a quartet's rounds of a tile whose first stage is at `ring`. */
INLINE void sum_rounds(float *sum, const stages_t stages, const ring_t ring, const int steps, const int quartet)
{
  const int turns = (steps + OWNERS * ROUND - 1) / (OWNERS * ROUND);
  wgmma_acc acc[WGMMA_ACC];
  UNROLL for (int i = 0; i < WGMMA_ACC; ++i) acc[i] = sum[i] = 0;
  for (int turn = 0; turn < turns; ++turn) {
    const int first = (SAME_ROWS ? 2 * turn + quartet - 1 : turn) * ROUND;
    const int end = min(first + ROUND, steps);
    meet(quartet, TWO_QUARTETS);
    for (int step = first; step < end; ++step)
      multiply_stage(acc, stages, advanced(ring, step), SAME_ROWS ? 0 : quartet - 1, step > first);
    announce(3 - quartet, TWO_QUARTETS);
    wgmma_wait(acc);
    if (first >= steps) continue;
    for (int step = first; step < end; ++step) release(stages, advanced(ring, step).stage);
    UNROLL for (int i = 0; i < WGMMA_ACC; ++i) sum[i] += acc[i];
  }
}

/* BM 64: adds the sums of both quartets. Each gets its half of the columns, in the first half of `sum`. */
#define HALF (WGMMA_ACC / 2)
INLINE void add_up(float *sum, __local float *handed, const int quartet)
{
  __local float *mine = handed + get_local_id(0) % 128;
  const bool right = quartet == 2;
  meet(3, TWO_QUARTETS); /* the sums of the tile before have been read */
  UNROLL for (int i = 0; i < HALF; ++i) {
    mine[128 * (right * HALF + i)] = right ? sum[i] : sum[HALF + i];
    sum[i] = right ? sum[HALF + i] : sum[i];
  }
  meet(3, TWO_QUARTETS);
  UNROLL for (int i = 0; i < HALF; ++i) sum[i] += mine[128 * (!right * HALF + i)];
}

/* --- Epilogue: from registers to global memory ------------------------------------------------------------------ */
#if SPLIT == 1
/* The exponents of one row and one column, of a quartet's 64 rows and BN columns. Loaded when a tile begins. */
INLINE int2 loaded_exponents(
    __global const int *exponents, const int row, const int column, const int rows, const int columns)
{
  const int w = get_local_id(0) % 128, i = row + w % 64, j = column + w;
  return (int2)(i < rows ? exponents[i] : 0, w < BN && j < columns ? exponents[rows + j] : 0);
}

/* Writes them to local memory before the quartet stores: those of the rows, then those of the columns. */
INLINE void keep_exponents(__local int *near, const int2 loaded, const int quartet)
{
  const int w = get_local_id(0) % 128;
  if (w < 64) near[w] = loaded.s0;
  if (w < BN) near[64 + w] = loaded.s1;
  meet(4 + quartet, QUARTET);
}
#define LINE_EXPONENTS exponents
#else
#define LINE_EXPONENTS 0
#endif

/* Stores a quartet's 64 rows of the tile at row0, column0; with BM 64 only its half of the columns. */
INLINE void store_rows(
    float *sum, __local const int *near, const int row0, const int column0, const int quartet, RESULT_ARGS)
{
  const int w = get_local_id(0) % 128;
  const int column = column0 + (SAME_ROWS && quartet == 2 ? BN / 2 : 0);
  const int row = w / 32 * 16 + w % 32 / 4;
#if SPLIT == 1
  scale_fragments(sum, near + row, near + 64 + column - column0, BN / 8 / OWNERS);
#endif
  store_fragments(row0 + row, 8, column, sum, BN / 8 / OWNERS, RESULT);
}

/* Multiplies and stores a quartet's part of all tiles of this work-group.
 *
 * The second quartet gives the first its first turn, and the first takes the last one back. So both meet equally often
 * before they hand sums over: racecheck counts a work-item's meetings, and takes work-items of unlike counts for unordered. */
INLINE void multiply(
    const int quartet, const work_t work, const int columns, const stages_t stages, __local float *handed,
    __local int *near, __global const int *exponents, RESULT_ARGS)
{
  ring_t ring = {0, 0};
  if (quartet == 2) announce(1, TWO_QUARTETS);
  for (int tile = get_group_id(0); tile < work.tiles; tile += get_num_groups(0)) {
    const int2 origin = piece_at(tile, work).origin;
    const int row0 = origin.s0 + (SAME_ROWS ? 0 : quartet - 1) * 64;
#if SPLIT == 1
    const int2 loaded = loaded_exponents(exponents, row0, origin.s1, M, columns);
#endif
    float sum[WGMMA_ACC];
    sum_rounds(sum, stages, ring, work.steps, quartet);
    ring = advanced(ring, work.steps);
    if (SAME_ROWS) add_up(sum, handed, quartet);
#if SPLIT == 1
    keep_exponents(near, loaded, quartet);
#endif
    store_rows(sum, near, row0, origin.s1, quartet, RESULT);
  }
  if (quartet == 1) meet(1, TWO_QUARTETS);
}

/* --- Entry ------------------------------------------------------------------------------------------------------- */
__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma_split(
    GEMM_ARGS, __global ulong *maps, __global uchar *packed_a, __global uchar *packed_b,
    const long pitch SPLIT_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64] ALIGNED(128);
  __local float handed[SAME_ROWS ? 128 * WGMMA_ACC : 1];
  __local int both_near[2][64 + BN];
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  const int columns = N * PLANES, depth = K * PLANES; /* of the real product */
#if SPLIT == 1
  exponents += z * (M + columns);
#elif SPLIT == 2
  __local int ends[3];
  if (done[z]) return;
  if (!tf32_parts_serve(exponents + z * (M + columns), M, columns, depth, ends)) {
    multiply_plainly(a, lda, b, ldb, K, WORK_ITEMS, RESULT);
    return;
  }
#endif

  /* Operands: tensor maps of the packed A and B, which sub-groups 0 and 1 feed. */
  const int id = get_local_id(0), quartet = id / 128, which = id / 32;
  const int line = (depth + BLOCK_DEPTH - 1) / BLOCK_DEPTH * BLOCK_K;
  const work_t work = work_of(M, columns, line, BLOCKS * BLOCK_K, 1, 0, 1);
  const stages_t stages = stages_in(tiles, bars);
  const piece_t first_tile = piece_at(get_group_id(0), work);
  const int ahead = min(work.steps, STAGES);
  fed_t operand;
  if (which < 2) {
    __global ulong *slot = maps + MAP_SLOT * (get_group_id(2) * get_num_groups(0) + get_group_id(0));
    const ulong about = word_about(slot, which);
    fetch_map(slot + 16 * which);
    const int lines = which ? columns : M;
    const long room = ROOM_OF_LINE(depth, pitch * ELEMENT_BYTES);
    __global const uchar *packed = (which ? packed_b : packed_a) + z * lines * room;
    operand = fed_operand(
        which, slot, scratch + 32 * which, packed, lines, min(line, (int)pitch), pitch * ELEMENT_BYTES, 1, 0, about);
  }

  /* Barriers. */
  if (id == 64) begin_stages(stages, 2, SAME_ROWS ? 4 : 8);
  barrier(CLK_LOCAL_MEM_FENCE);

  /* Prologue: the first copies run while half_parts_serve decides whether their data can be used. */
  ring_t ring = {0, 0};
  if (which < 2 && id % 32 == 0) feed_piece(which, operand, BLOCKS, first_tile, 0, ahead, 0, &ring, stages);
#if SPLIT == 1
  __local int worst[3];
  if (!half_parts_serve(quality, done, z, M, columns, depth, worst)) {
    for (int step = 0; id == 0 && step < ahead; ++step) wait_until_full(stages, advanced((ring_t){0, 0}, step));
    split_all_to_tf32(
        source_a(a, lda, M, depth), source_b(b, ldb, columns, depth), packed_a, packed_b, z, WORK_ITEMS);
    return;
  }
#endif

  /* Quartets 1 and 2 multiply, sub-groups 0 and 1 go on to copy. */
  if (quartet) {
    multiply(quartet, work, columns, stages, handed, both_near[quartet - 1], LINE_EXPONENTS, RESULT);
    return;
  }
  if (which >= 2 || id % 32) return;
  feed_piece(which, operand, BLOCKS, first_tile, ahead, work.steps, 0, &ring, stages);
  for (int tile = get_group_id(0) + get_num_groups(0); tile < work.tiles; tile += get_num_groups(0))
    feed_piece(which, operand, BLOCKS, piece_at(tile, work), 0, work.steps, 0, &ring, stages);
}
