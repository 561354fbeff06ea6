/* How tiles reach local memory on NVIDIA devices of compute capability 8.0 and up: `cp.async`, which
 * moves 4, 8 or 16 bytes from global to local memory past the registers. The twin of register_held.h.
 *
 *   fetch_tile(stream, ...)  starts the copies of the next tile
 *   land_tile(stream, ...)   waits for the oldest tile still in flight
 *
 * Needs A_TYPE = B_TYPE = ACC_TYPE, no conjugation. A tile with k as its contiguous axis is transposed
 * by copying single elements. Source: the PTX ISA manual, "Data Movement and Conversion Instructions".
 */
#define LEAD (STAGES - 1)
#define DRAIN asm volatile("cp.async.wait_all;" ::: "memory")

typedef struct {
  Walk a, b;
} Stream;

/* A source size of 0 reads nothing and writes zeros. */
INLINE void copy_async(__local ACC_T *to, __global const ACC_T *from, const int bytes, const bool valid)
{
  const uint target = (uint)(size_t)to;
  const int size = valid ? bytes : 0;
  if (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(from), "r"(size) : "memory");
  else if (bytes == 8)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(target), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(from), "r"(size) : "memory");
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
