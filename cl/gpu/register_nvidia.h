/* How tiles reach local memory on NVIDIA devices of compute capability 8.0 and up: `cp.async`, which moves
 * 4, 8 or 16 bytes from global to local memory past the registers. The twin of register_held.h.
 *
 *   fetch_a, fetch_b   issue the copies of the next tiles; fetch_b, the second, closes the group
 *   land_tile          waits for the oldest tiles still in flight
 *   DRAIN              waits until nothing writes to local memory any more
 *
 * Needs A and B stored with the accumulator's bits, not conjugated. A tile with k as its contiguous axis
 * is transposed by copying single elements. Macros: those of register_tile.h, and STAGES.
 * Source: the PTX ISA manual, "Data Movement and Conversion Instructions".
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/chunk.h"
#include "gpu/register_tile.h"

#define LEAD (STAGES - 1)
#define DRAIN asm volatile("cp.async.wait_all;" ::: "memory")

typedef struct {
  Walk a, b;
} Stream;

#define COPY_ASYNC(cache, bytes)                                                             \
  asm volatile("cp.async." cache ".shared.global [%0], [%1], " bytes ", %2;" ::"r"(target), \
               "l"(from), "r"(size)                                                         \
               : "memory")

/* A source size of 0 reads nothing and writes zeros. */
INLINE void copy_async(__local ACC_T *to, __global const ACC_T *from, const int bytes, const bool valid)
{
  const uint target = (uint)(size_t)to;
  const int size = valid ? bytes : 0;
  if (bytes == 16)
    COPY_ASYNC("cg", "16");
  else if (bytes == 8)
    COPY_ASYNC("ca", "8");
  else
    COPY_ASYNC("ca", "4");
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
