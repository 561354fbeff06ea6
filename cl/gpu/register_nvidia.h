/* Copies tiles to local memory on NVIDIA devices of compute capability 8.0 or higher with `cp.async`, which moves
 * 4, 8 or 16 bytes from global to local memory without registers. register_held.h is the alternative.
 *
 *   fetch_a, fetch_b   issue the copies of the next tiles; fetch_b comes second and closes the group of copies
 *   land_tile          waits for the oldest tiles in flight
 *   DRAIN              waits until no copy writes to local memory any more
 *
 * A and B must be stored with the accumulator's bits and not be conjugated. The tile of an operand along K is
 * transposed by copying single elements. Macros: STAGES, 2 or more; FETCH_B, the k of a step before which the
 * copies of B are issued, at most the last k; those of register_tile.h.
 * Source: the PTX ISA manual, "Data Movement and Conversion Instructions".
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/chunk.h"
#include "gpu/register_tile.h"

#if !defined(STAGES) || !defined(FETCH_B)
#error "register_nvidia.h needs STAGES FETCH_B"
#endif

#define LEAD (STAGES - 1)
#define FETCH_STEP_A 1
#define FETCH_STEP_B SMALLER(FETCH_B, SLICE_K - 1)
#define DRAIN asm volatile("cp.async.wait_all;" ::: "memory")

typedef struct {
  Walk a, b;
} Stream;

#define COPY_ASYNC(cache, bytes, target, from, size)                                         \
  asm volatile("cp.async." cache ".shared.global [%0], [%1], " bytes ", %2;" ::"r"(target), \
               "l"(from), "r"(size)                                                         \
               : "memory")

/* With a source size of 0, the copy reads nothing and writes zeros. */
INLINE void copy_async(__local ACC_T *to, __global const ACC_T *from, const int bytes, const bool valid)
{
  const uint target = (uint)(size_t)to;
  const int size = valid ? bytes : 0;
  if (bytes == 16)
    COPY_ASYNC("cg", "16", target, from, size);
  else if (bytes == 8)
    COPY_ASYNC("ca", "8", target, from, size);
  else
    COPY_ASYNC("ca", "4", target, from, size);
}

INLINE void fetch_operand(
    Walk *w, __local ACC_T *tile, const int width, const int line, const int vec, const int across)
{
  const int pass_x = PASS_X(width, vec, across), pass_k = PASS_K(width, vec, across);
  UNROLL for (int k = 0; k < BK; k += pass_k) {
    UNROLL for (int x = 0; x < width; x += pass_x) {
      copy_async(tile + w->to + k * line + x, (__global const ACC_T *)w->at, vec * (int)sizeof(ACC_T),
                 inside(w, x, k, width, pass_x));
      w->at += x + pass_x < width ? w->step_x : w->step_k;
    }
  }
  w->k_left -= BK;
}

INLINE void fetch_a(Stream *s, __local ACC_T *stage)
{
  fetch_operand(&s->a, stage, BM, LINE_A, VEC_A, !TRANS_A);
}

INLINE void fetch_b(Stream *s, __local ACC_T *stage)
{
  fetch_operand(&s->b, stage + BK * LINE_A, BN, LINE_B, VEC_B, TRANS_B);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

INLINE void land_tile(Stream *s, __local ACC_T *stage)
{
  asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
}
