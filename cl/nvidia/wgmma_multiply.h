/* wgmma_multiply: a quartet of wgmma.cl multiplies a stage of wgmma_stages.h.
 *
 * Macros: ALTERNATE 0, 1 (wgmma.cl); those of ptx_wgmma.h, fragment_rows.h and wgmma_stages.h.
 */
#include "nvidia/fragment_rows.h"
#include "nvidia/left_registers.h"
#include "nvidia/ptx_wgmma.h"
#include "nvidia/wgmma_stages.h"

#ifndef ALTERNATE
#error "wgmma_multiply.h needs ALTERNATE"
#endif
#define QUARTETS (ALTERNATE ? 2 : BM / 64) /* that multiply */
#define FRAGMENTS (ALTERNATE ? BM / 64 : 1) /* of 64 rows, that a quartet multiplies */
#define ACCS (FRAGMENTS * WGMMA_ACC)

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

/* Multiplies a stage once it is full. Releases stage `before`, which was multiplied before it; -1: there is none. */
INLINE void multiply_stage(
    wgmma_acc *acc, uint (*left)[4 * FRAGMENTS], const uint rows, const int lane, const stages_t stages,
    const ring_t ring, const int before)
{
  const uint at = stages.tiles + ring.stage * STAGE_BYTES;
  const uint place = at + rows;
  const ulong right = wgmma_right(at + TILE_A, ROWS_64);
  wait_until_full(stages, ring);
  if (AHEAD) {
    wgmma_wait_all_but(LEFT_SETS - 1);
    load_left(left[0], place, 0);
  }
  UNROLL for (int step = 0; step < 4; ++step) {
    const uint *words = left[step % LEFT_SETS];
    wgmma_wait_all_but(LEFT_SETS - 1 - AHEAD); /* until the registers that are loaded next are free */
    if (step == LEFT_SETS - 1 - AHEAD && before >= 0 && lane == 0) mbarrier_arrive(stages.empty + 8 * before);
    if (step + AHEAD < 4) load_left(left[(step + AHEAD) % LEFT_SETS], place, step + AHEAD);
    wgmma_fence();
    UNROLL for (int f = 0; f < FRAGMENTS; ++f)
      wgmma_left(acc + f * WGMMA_ACC, words + 4 * f, right + step * WGMMA_STEP_B);
    wgmma_commit();
  }
}
#else
INLINE uint place_of_rows(const int part) { return part * ROWS_64; }

INLINE void multiply_stage(
    wgmma_acc *acc, uint (*left)[4 * FRAGMENTS], const uint rows, const int lane, const stages_t stages,
    const ring_t ring, const int before)
{
  const uint at = stages.tiles + ring.stage * STAGE_BYTES;
  const ulong a = wgmma_tile(at + rows, ROWS_64);
  const ulong b = wgmma_right(at + TILE_A, ROWS_64);
  wait_until_full(stages, ring);
  wgmma_fence();
  UNROLL for (int step = 0; step < 4; ++step) {
    UNROLL for (int f = 0; f < FRAGMENTS; ++f)
      wgmma(acc + f * WGMMA_ACC, a + f * (ROWS_64 / 16) + step * WGMMA_STEP_A, b + step * WGMMA_STEP_B, 1);
  }
  wgmma_commit();
  wgmma_wait_previous();
  if (before >= 0 && lane == 0) mbarrier_arrive(stages.empty + 8 * before);
}
#endif
