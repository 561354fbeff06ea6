/* Copies tiles to local memory on NVIDIA devices of compute capability 8.0 or higher with `cp.async`, which moves
 * 4, 8 or 16 bytes from global to local memory without registers. register_held.h is the alternative.
 *
 *   fetch_a, fetch_b   issue the copies of the next tiles; fetch_b comes second and closes the group of copies
 *   land_tile          waits for the oldest tiles in flight
 *   DRAIN              waits until no copy writes to local memory any more
 *
 * A and B must be stored with the accumulator's bits and not be conjugated. The tile of an operand along K is
 * transposed by copying single elements, unless it stays along K in local memory (ALONG_A, ALONG_B).
 * Macros: STAGES, 2 or more; FETCH_B, the k of a step before which the copies of B are issued, 1 or more and at most
 * the last k; those of register_tile.h.
 */
#include "include/chunk.h"
#include "gpu/register_tile.h"
#include "nvidia/ptx.h"

#if !defined(STAGES) || !defined(FETCH_B)
#error "register_nvidia.h needs STAGES FETCH_B"
#elif FETCH_B < 1
#error "register_nvidia.h needs FETCH_B of 1 or more"
#endif

#define LEAD (STAGES - 1)
#define FETCH_STEP_A 1
#define FETCH_STEP_B SMALLER(FETCH_B, SLICE_K - 1)
#define DRAIN copies_wait(0)

typedef struct {
  Walk a, b;
} Stream;

INLINE void fetch_operand(
    Walk *w, __local ACC_T *tile, const int width, const int line, const int vec, const int across, const int along)
{
  const int pass_x = PASS_X(width, vec, across), pass_k = PASS_K(width, vec, across);
  UNROLL for (int k = 0; k < BK; k += pass_k) {
    UNROLL for (int x = 0; x < width; x += pass_x) {
      __local ACC_T *to = along ? tile + w->to + x * line + k : tile + w->to + k * line + x;
      const int bytes = vec * (int)sizeof(ACC_T);
      fill_async(local_address(to), w->at, bytes, inside(w, x, k, width, pass_x) ? bytes : 0);
      w->at += x + pass_x < width ? w->step_x : w->step_k;
    }
  }
  w->k_left -= BK;
}

INLINE void fetch_a(Stream *s, __local ACC_T *stage)
{
  fetch_operand(&s->a, stage, BM, LINE_A, VEC_A, !TRANS_A, ALONG_A);
}

INLINE void fetch_b(Stream *s, __local ACC_T *stage)
{
  fetch_operand(&s->b, stage + TILE_A, BN, LINE_B, VEC_B, TRANS_B, ALONG_B);
  copies_commit();
}

INLINE void land_tile(Stream *s, __local ACC_T *stage)
{
  copies_wait(STAGES - 2);
}
