/* wgmma_quartet: what a quartet of wgmma.cl and its forms does with a stage that feeders (wgmma_feeders.h) have filled, and with
 * its sums. An A of 4 or 1 bytes that is stored across K goes through registers to wgmma (ptx_wgmma.h), in the order of rows of
 * fragment_rows.h.
 *
 * Bytes lie in local memory as rows of k, with 64 or 128 rows of A beside each other, in boxes of ptx_map.h. ldmatrix.trans
 * moves 16-bit elements, here two neighbouring rows of A at one k. Work-item 4 g + t receives these pairs at four
 * values of k; two permutations of bytes make the words of rows 2 g and 2 g + 1:
 *
 *     X: k + 0, k + 1      Y: k + 2, k + 3       each (row 2 g, row 2 g + 1)      k = 4 t
 *
 * For t >= 2 X and Y are exchanged, so that the eight lines that are read at once differ in k % 8, hence in their banks.
 *
 * SWAPPED 1: stores fragments of out^T in out. A fragment's columns are rows of out, and its rows are contiguous
 * there.
 *
 *     work-item 4 g + t, block b of eight columns:   acc[4 b + 2 h + c] is at (i + ROW_STEP h, 8 b + 2 t + c)
 *
 * With LEFT_REGISTERS (fragment_rows.h), the rows of h = 0 and 1 are neighbours and are stored as pairs. With elements
 * of 4 bytes, four work-items then fill a sector of 32 bytes. Otherwise the eight work-items with different g fill it.
 *
 * Macros: ALTERNATE 0, 1 (wgmma.cl); those of ptx_wgmma.h, fragment.h, fragment_rows.h and wgmma_feeders.h.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "nvidia/fragment.h"
#include "nvidia/fragment_rows.h"
#include "nvidia/ptx_wgmma.h"
#include "nvidia/wgmma_feeders.h"
#include "nvidia/wgmma_lines.h"

#ifndef ALTERNATE
#error "wgmma_quartet.h needs ALTERNATE"
#endif
#define QUARTETS (ALTERNATE ? 2 : BM / 64) /* that multiply */
#define FRAGMENTS (ALTERNATE ? BM / 64 : 1) /* of 64 rows, that a quartet multiplies */
#define ACCS (FRAGMENTS * WGMMA_ACC)
#define OWNERS (ALTERNATE ? 1 : QUARTETS) /* quartets that divide a tile */
#define WORK_ITEMS (128 * (QUARTETS + 1))
#define LINES_BYTES (LINES ? QUARTETS * CHUNK_BYTES : 0) /* of local memory behind the stages */

/* --- What an entry begins with: this sub-group as a feeder, and the barriers of each stage, full and empty (stages.h) --- */
INLINE feeder_t begin_stages_of(
    const stages_t stages, __global ulong *maps, const work_t work, __local uint *scratch, const long z, const int stack,
    OPERANDS_ARGS)
{
  const feeder_t own = feeder_of(maps, work, scratch, z, stack, SWAPPED, OPERANDS);
  if (get_local_id(0) == WORK_ITEMS - 1) begin_stages(stages, 2, 4 * OWNERS);
  barrier(CLK_LOCAL_MEM_FENCE);
  meet_members();
  return own;
}

/* ALTERNATE 1: the barrier where a quartet waits until the other one has issued the multiplications of its piece. */
INLINE int turn_of(const int quartet) { return 4 + quartet; }

/* --- Main loop: a stage --- */
#if LEFT_REGISTERS && ELEMENT_BYTES == 4
/* The byte where the rows of work-item w of quartet `part` lie at k = t. For k = t + 4 add 512 and flip the bit of 64; for
 * the next step of 8 of K add 1,024. */
INLINE uint left_place(const int part, const int w)
{
  const int row = fragment_row(w), t = w % 4;
  return part * ROWS_64 + row / 32 * 4096 + t * 128 + (row % 32 / 4 ^ t) * 16 + row % 4 * 4;
}

/* The words of fragment f for one step of 8 of K. */
INLINE void load_fragment(uint *words, const uint place, const int f, const int step)
{
  load_pair(words, place + f * ROWS_64 + step * 1024);
  load_pair(words + 2, (place ^ 64) + f * ROWS_64 + step * 1024 + 512);
}
#elif LEFT_REGISTERS && ELEMENT_BYTES == 1
#define LEFT_LINE (BM < 128 ? 64 : 128) /* bytes of a row of a box */
#define STEP_LEFT (32 * LEFT_LINE)

/* The byte that work-item w of quartet `part` addresses in step 0. */
INLINE uint left_place(const int part, const int w)
{
  const int i = w % 8, j = w / 8 % 4;
  const int k = 16 * (j / 2) + 4 * (i / 2) + i % 2 + 2 * ((j ^ i / 4) & 1);
  const int chunk = (LEFT_LINE == 128 ? part % 2 * 4 : 0) + w / 32;
  const int turned = LEFT_LINE == 128 ? chunk ^ k % 8 : chunk ^ k / 2 % 4;
  return part / 2 * (128 * 128) + k * LEFT_LINE + turned * 16;
}

/* The words of fragment f for one step of 32 of K. */
INLINE void load_fragment(uint *words, const uint place, const int f, const int step)
{
  const bool exchanged = get_local_id(0) & 2;
  const uint even = exchanged ? 0x2064 : 0x6420, odd = exchanged ? 0x3175 : 0x7531;
  uint x[4];
  load_matrices_transposed(x, (place ^ f * 64) + step * STEP_LEFT);
  UNROLL for (int q = 0; q < 2; ++q) {
    words[2 * q] = chosen_bytes(x[2 * q], x[2 * q + 1], even);
    words[2 * q + 1] = chosen_bytes(x[2 * q], x[2 * q + 1], odd);
  }
}
#endif

#if LEFT_REGISTERS
/* LEFT_SETS: steps of 32 bytes of K whose elements of A are in registers. AHEAD: how many steps loads are ahead of wgmma.
 * wgmma waits until the matrix units take A, so a load issued behind it would be late. The largest tiles have
 * registers for two sets only, but also two quartets: one multiplies while the other waits. */
#define LEFT_SETS (ACCS > 96 && QUARTETS > 1 ? 2 : 4)
#define AHEAD (LEFT_SETS == 4)

/* Where in a stage the rows of quartet `part` of the tile begin for this work-item. */
INLINE uint place_of_rows(const int part) { return left_place(part, get_local_id(0) % 128); }

/* Loads this work-item's words of A for one step, for all fragments. */
INLINE void load_left(uint *words, const uint place, const int step)
{
  UNROLL for (int f = 0; f < FRAGMENTS; ++f) load_fragment(words + 4 * f, place, f, step);
}

#else
INLINE uint place_of_rows(const int part) { return part * ROWS_64; }
#endif

/* Multiplies a stage once it is full. Releases stage `before`, which was multiplied before it; -1: there is none. */
INLINE void multiply_stage(
    wgmma_acc *acc, uint (*left)[4 * FRAGMENTS], const uint rows, const stages_t stages,
    const ring_t ring, const int before)
{
  const uint at = stages.tiles + ring.stage * BLOCK_BYTES, place = at + rows;
  const ulong right = wgmma_right(at + TILE_A, ROWS_64);
  wait_until_full(stages, ring);
#if LEFT_REGISTERS
  if (AHEAD) {
    wgmma_wait_all_but(LEFT_SETS - 1);
    load_left(left[0], place, 0);
  }
  UNROLL for (int step = 0; step < 4; ++step) {
    const uint *words = left[step % LEFT_SETS];
    wgmma_wait_all_but(LEFT_SETS - 1 - AHEAD); /* until the registers that are loaded next are free */
    if (step == LEFT_SETS - 1 - AHEAD && before >= 0) release(stages, before);
    if (step + AHEAD < 4) load_left(left[(step + AHEAD) % LEFT_SETS], place, step + AHEAD);
    wgmma_fence();
    UNROLL for (int f = 0; f < FRAGMENTS; ++f)
      wgmma_left(acc + f * WGMMA_ACC, words + 4 * f, right + step * WGMMA_STEP_B);
    wgmma_commit();
  }
#else
  const ulong a = wgmma_tile(place, ROWS_64);
  wgmma_fence();
  UNROLL for (int step = 0; step < 4; ++step) {
    UNROLL for (int f = 0; f < FRAGMENTS; ++f)
      wgmma(acc + f * WGMMA_ACC, a + f * (ROWS_64 / 16) + step * WGMMA_STEP_A, right + step * WGMMA_STEP_B, 1);
  }
  wgmma_commit();
  wgmma_wait_all_but(1);
  if (before >= 0) release(stages, before);
#endif
}

#if LISTED == 2
#define BOXES ((BM + BN) / 64) /* of a stage; a box has a line of 128 bytes for each k */

/* K is divided among products: makes zeros of all but `depth` elements of K of the stage at `ring`, which has k of the next
 * product too. Each quartet that reads it does. */
INLINE void clear_rest(const int quartet, const stages_t stages, const ring_t ring, const int depth)
{
  if (depth >= BLOCK_K) return;
  wait_until_full(stages, ring);
  const int rest = (BLOCK_K - depth) * 128; /* bytes of each box */
  for (int box = 0; box < BOXES; ++box)
    for (int at = get_local_id(0) % 128 * 8; at < rest; at += 128 * 8)
      leave_pair(stages.tiles + ring.stage * BLOCK_BYTES + box * ROWS_64 + depth * 128 + at, (uint2)(0));
  stores_fence();
  meet(8 + quartet, QUARTET);
}
#endif

/* --- Epilogue: from the registers of a quartet to global memory --- */
#if SWAPPED && !LINES
INLINE void store_in_column(const int i, const int j, const sum_t sum, RESULT_ARGS)
{
  if (i < M && j < N) STORE_OUT(out, OUT_AT(i, j, ldo), finished_at(i, j, (ACC_T)sum, RESULT));
}

/* Stores v[0] and v[2], column j of rows i and i + ROW_STEP. */
INLINE void store_column(const int i, const int j, const sum_t *v, RESULT_ARGS)
{
#if LEFT_REGISTERS && PAIRS
  if (i + 1 < M && j < N)
    store_two(out + OUT_AT(i, j, ldo), finished_at(i, j, (ACC_T)v[0], RESULT), finished_at(i + 1, j, (ACC_T)v[2], RESULT));
  else
    store_in_column(i, j, v[0], RESULT);
#else
  store_in_column(i, j, v[0], RESULT);
  store_in_column(i + ROW_STEP, j, v[2], RESULT);
#endif
}

/* Stores all fragments of rows i and i + ROW_STEP: `blocks` blocks from column j on. */
INLINE void store_fragment_columns(const int i, const int j, const sum_t *acc, const int blocks, RESULT_ARGS)
{
  UNROLL for (int b = 0; b < blocks; ++b)
    UNROLL for (int e = 0; e < 2; ++e)
      store_column(i, j + 8 * b + (int)get_local_id(0) % 4 * 2 + e, acc + 4 * b + e, RESULT);
}
#endif

/* Stores a quartet's sums of a product of the stack, with the epilogue. `part`: which quartet of the tile. */
INLINE void store_product(
    const wgmma_acc *acc, const piece_t piece, const int part, const stages_t stages,
    __global const long *batch_offsets, RESULT_ARGS)
{
  out += BATCH_OFFSET_OF(batch_offsets, BATCH_ENTRY + piece.layer, 3);
  c += BATCH_OFFSET_OF(batch_offsets, BATCH_ENTRY + piece.layer, 2);
  const int row = piece.origin.s0 + part * 64;
  UNROLL for (int f = 0; f < FRAGMENTS; ++f) {
    const wgmma_acc *sums = acc + f * WGMMA_ACC;
#if LINES
    store_in_lines(stages, row + 64 * f, piece.origin.s1, sums, RESULT);
#elif SWAPPED
    store_fragment_columns(row + 64 * f + fragment_row(get_local_id(0) % 128), piece.origin.s1, sums, BN / 8, RESULT);
#else
    store_fragments(
        row + 64 * f + fragment_row(get_local_id(0) % 128), ROW_STEP, piece.origin.s1, sums, BN / 8, RESULT);
#endif
  }
}

/* Stores a quartet's sums of a range of K, in the order of fragment_rows.h. split_k.cl adds them. */
INLINE void store_partial(
    const wgmma_acc *acc, const piece_t piece, const int part, const work_t work, __global wgmma_acc *partial)
{
  partial += partial_at(piece.tile - work.whole, work.tiles - work.whole, piece.range, work.split_k, BM * BN);
  __global wgmma_acc4 *to = (__global wgmma_acc4 *)(partial + part * (128 * ACCS)) + get_local_id(0) % 128;
  UNROLL for (int i = 0; i < ACCS / 4; ++i)
    to[128 * i] = (wgmma_acc4)(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
}
