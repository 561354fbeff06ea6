/* Copies tiles to local memory in plain OpenCL C, staged in registers. register_nvidia.h is the alternative.
 *
 *   fetch_a, fetch_b   start the loads of the next tiles
 *   land_tile          stores them in local memory
 *   DRAIN              waits until no copy writes to local memory any more
 *
 * The loads are in flight while the work-items multiply the previous tile. Elements are converted while they are
 * copied, so local memory always holds ACC_T. `stage` is the place of the tiles of A and B in local memory.
 * Macros: those of register_tile.h.
 */
#include "include/chunk.h"
#include "gpu/register_tile.h"

#define STAGES 2
#define LEAD 1 /* stages ahead of the one that is multiplied */
#define FETCH_STEP_A 0
#define FETCH_STEP_B 0
#define DRAIN

typedef struct {
  Walk a, b;
  ACC_T held_a[PASSES(BM, VEC_A) * VEC_A], held_b[PASSES(BN, VEC_B) * VEC_B];
} Stream;

/* One access of VEC elements; zeros if it is not valid. */
#define READ_CHUNK(to, p, valid)                                                \
  do {                                                                          \
    const chunk_t v_ = (valid) ? *(__global const chunk_t *)(p) : (chunk_t)(0); \
    SPREAD(to, v_);                                                             \
  } while (0)
#if VEC_A > 1
#define READ_A READ_CHUNK
#else
#define READ_A(to, p, valid) ((to)[0] = (valid) ? LOAD_A((__global const A_T *)(p), 0) : ACC_ZERO)
#endif
#if VEC_B > 1
#define READ_B READ_CHUNK
#else
#define READ_B(to, p, valid) ((to)[0] = (valid) ? LOAD_B((__global const B_T *)(p), 0) : ACC_ZERO)
#endif

/* A macro and not a function, because READ converts from different types for A and B. */
#define FETCH_OPERAND(READ, w, held, width, vec, across)                                       \
  do {                                                                                         \
    const int pass_x = PASS_X(width, vec, across), pass_k = PASS_K(width, vec, across);        \
    UNROLL for (int k = 0; k < BK; k += pass_k) {                                              \
      UNROLL for (int x = 0; x < width; x += pass_x) {                                         \
        const int pass = k / pass_k * (width / pass_x) + x / pass_x;                           \
        READ((held) + pass * vec, (w)->at, inside(w, x, k, width, pass_x));                    \
        (w)->at += x + pass_x < width ? (w)->step_x : (w)->step_k;                             \
      }                                                                                        \
    }                                                                                          \
    (w)->k_left -= BK;                                                                         \
  } while (0)

INLINE void fetch_a(Stream *s, __local ACC_T *stage)
{
  FETCH_OPERAND(READ_A, &s->a, s->held_a, BM, VEC_A, !TRANS_A);
}

INLINE void fetch_b(Stream *s, __local ACC_T *stage)
{
  FETCH_OPERAND(READ_B, &s->b, s->held_b, BN, VEC_B, TRANS_B);
}

/* Consecutive elements e of an access are consecutive in k (across) or in x. */
INLINE void land_operand(
    const Walk *w, const ACC_T *held, __local ACC_T *tile, const int width, const int line,
    const int vec, const int across)
{
  const int pass_x = PASS_X(width, vec, across), pass_k = PASS_K(width, vec, across);
  UNROLL for (int k = 0; k < BK; k += pass_k)
    UNROLL for (int x = 0; x < width; x += pass_x)
      UNROLL for (int e = 0; e < vec; ++e)
        tile[w->to + k * line + x + e * (across ? line : 1)] =
            held[(k / pass_k * (width / pass_x) + x / pass_x) * vec + e];
}

INLINE void land_tile(Stream *s, __local ACC_T *stage)
{
  land_operand(&s->a, s->held_a, stage, BM, LINE_A, VEC_A, !TRANS_A);
  land_operand(&s->b, s->held_b, stage + TILE_A, BN, LINE_B, VEC_B, TRANS_B);
}
