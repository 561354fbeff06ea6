/* amx: out = A B by the matrix units of Intel's processors (AMX), with one work-item in each work-group.
 *
 *                 j0    nc                 work-group (tile column, tile row, z),
 *              +-----+------+---+          the first two exchanged with rows_first:
 *              |  B  |//////|   | kc         for k0 in steps of kc:
 *              +-----+------+---+              for each 32 rows, for each 32 columns of the mc x nc tile:
 *       kc                                       sums = 0, or those of earlier steps
 *     +-----+  +-----+------+---+                sums += A(32 rows, kc) B(kc, 32 columns)     (amx_tiles.h)
 *     |/////|  |     | out  |   | mc             keep them, or store them after the last step
 *     +-----+  +-----+------+---+
 *
 * kc x 32 of A, kc x nc of B and the sums stay in the second-level cache: a load of a tile from there is a little slower
 * than a multiplication, but sums that are kept often cost more (docs/kernels/amx.md). B is in panels of tiles (amx_panels.h), A too or in place.
 *
 * TDPBF16PS takes subnormal operands and sums for zero. With CHECKED 1 the result is as if it did not: the launches that
 * pack look at every number. If each is zero or at least 2^-51, a product of two that are not zero is at least 2^-102.
 * To take a sum for zero then loses less than 2^-126 <= 2^-24 |a b|, once for each product at most. That is what a
 * rounding may lose. Otherwise plan[0] stays 0: this kernel returns at once, and the launches that follow it compute
 * the product in another way (GATE 1).
 *
 * Macros: BM, BN, the largest mc and nc, multiples of 32; KC, the largest kc, in steps; PACK_A, 1: A is in panels, 0: in place; CHECKED 0, 1; those of
 * the headers. LANES is 16.
 *
 * Preconditions: K > 0. mc, nc are multiples of 32. Without PACK_A M is a multiple of 32 and K of STEP.
 * The process has asked Linux for the use of the tile registers.
 */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/amx_tiles.h"
#include "cpu/amx_panels.h"

#if !defined(BM) || !defined(BN) || !defined(PACK_A) || !defined(CHECKED)
#error "amx.cl needs BM BN PACK_A CHECKED"
#endif

/* --- Last step: stores a block of sums to out, through the epilogue ---------------------------------------- */

/* 1: rows of 16 elements at a time. The epilogue is at most relu(alpha * acc + bias), out has one of the usual types. */
#define vector_of_float32 1
#define vector_of_bfloat16 2
#define vector_of_int8 3
#define vector_of_uint8 3
#define vector_of_int32 3
#define vector_of_uint32 3
#define OUT_KIND CAT(vector_of_, OUT_TYPE)
#define IS_FLOAT SAME_TYPE(float32, ACC_TYPE)
#define VECTOR_STORE                                                                          \
  (!HAS_C && GATE != 2 && (IS_FLOAT ? ACTIVATION <= 1 && (OUT_KIND == 1 || OUT_KIND == 2)     \
                                    : !ACTIVATION && OUT_KIND >= 3))

#if VECTOR_STORE
typedef CAT(elem_, OUT_TYPE) LOOSE_ROW __attribute__((ext_vector_type(16), aligned(1)));

INLINE void store_vector(__global OUT_T *out, const VEC x)
{
#if OUT_KIND == 1
  *(__global LOOSE_ROW *)out = x;
#elif OUT_KIND == 2 /* as to_bfloat16 (types.h) */
  const uint16 bits = as_uint16(x), up = bits >> 16;
  const uint16 value = (bits & 0x7fffffff) > 0x7f800000 ? up | 0x40 : (bits + 0x7fff + (up & 1)) >> 16;
  *(__global LOOSE_ROW *)out = __builtin_convertvector(value, ushort16);
#else
  *(__global LOOSE_ROW *)out = __builtin_convertvector(x, LOOSE_ROW);
#endif
}

/* `rows` rows of BLOCK sums from column j on. */
INLINE void store_rows(__local const ACC_T *sums, const int i, const int j, const int rows, RESULT_ARGS)
{
  for (int first = 0; first < BLOCK; first += TILE) {
    VEC shift = (VEC)(0);
#if BIAS == 1
    for (int s = 0; s < TILE; ++s) shift[s] = LOAD_BIAS(bias, (long)(j + first + s) * bias_stride);
#endif
    for (int r = 0; r < rows; ++r) {
      VEC x = alpha * *(__local const VEC *)(sums + r * BLOCK + first);
#if BIAS == 2
      shift = (VEC)(LOAD_BIAS(bias, (long)(i + r) * bias_stride));
#endif
#if BIAS
      x += shift;
#endif
#if ACTIVATION == 1
      x = x < 0 ? (VEC)(0) : x; /* a comparison: NaN stays NaN */
#endif
      store_vector(out + (long)(i + r) * ldo + j + first, x);
    }
  }
}
#endif

/* Stores the block at (i, j), as far as it is within the result. */
INLINE void store_sums(__local const ACC_T *sums, const int i, const int j, RESULT_ARGS)
{
  const int rows = min(BLOCK, M - i), columns = min(BLOCK, N - j);
#if VECTOR_STORE
  if (columns == BLOCK) {
    store_rows(sums, i, j, rows, RESULT);
    return;
  }
#endif
  for (int r = 0; r < rows; ++r)
    for (int s = 0; s < columns; ++s) STORE_RESULT(i + r, j + s, sums[r * BLOCK + s], RESULT);
}

/* --- Main loop ------------------------------------------------------------------------------------------------ */

/* The byte where 32 rows of A begin at a step, and the bytes from one row, and from one step, to the next. */
#if PACK_A
#define A_START(a, panels, i, step, lda, M, K) ((ulong)(panels) + place_of((i) / BLOCK, step, PANELS_OF(M), STEPS_OF(K)))
#define A_ROW(lda) ((long)ROW_BYTES)
#define A_NEXT (2 * TILE_BYTES)
#else
#define A_START(a, panels, i, step, lda, M, K) ((ulong)((a) + (i) * (lda) + (long)(step) * STEP))
#define A_ROW(lda) ((lda) * (long)sizeof(A_T))
#define A_NEXT ROW_BYTES
#endif

#if CHECKED
/* Decides between this product and another one: plan[0] is 1 if no small number was seen. */
__kernel ONE_ITEM void amx_choose(__global int *plan)
{
  plan[0] = !plan[1];
  plan[1] = 0;
}
#endif

/* `steps` steps of a block: the sums become those at `sum`, which begin with zeros if this is the first. */
INLINE void compute_block(
    __local ACC_T *sum, ulong a, const long row, ulong b, const int steps, const bool first)
{
  const ulong upper = (ulong)sum, lower = upper + TILE * BLOCK * sizeof(ACC_T);
  if (first) clear_block();
  else load_block(upper, lower, BLOCK * sizeof(ACC_T));
  for (int s = 0; s < steps; ++s) {
    multiply_block(a, a + TILE * row, row, b);
    a += A_NEXT;
    b += 2 * TILE_BYTES;
  }
  store_block_at(upper, lower, BLOCK * sizeof(ACC_T));
}

__kernel ONE_WIDE_ITEM void amx_multiply(
    GEMM_ARGS, const int mc, const int nc, const int rows_first, __global const uchar *a_panels,
    const long a_stack, __global const uchar *b_panels, const long b_stack, __global const int *plan)
{
  __local ACC_T sums[BM * BN] ALIGNED(64);
  GEMM_BEGIN;
#if CHECKED
  if (!plan[0]) return;
#endif
  a_panels += BATCH_ENTRY * a_stack;
  b_panels += BATCH_ENTRY * b_stack;
  const int i0 = get_group_id(!rows_first) * mc, j0 = get_group_id(rows_first) * nc;
  const int i_end = min(M, i0 + mc), j_end = min(N, j0 + nc), steps = STEPS_OF(K);
  configure_tiles();
  for (int k0 = 0; k0 < steps; k0 += KC) {
    const int length = min(KC, steps - k0);
    int block = 0;
    for (int i = i0; i < i_end; i += BLOCK)
      for (int j = j0; j < j_end; j += BLOCK, ++block) {
        /* The sums of one chunk need not outlive their block: the first-level cache keeps them. */
        __local ACC_T *sum = sums + (steps <= KC ? 0 : block * BLOCK * BLOCK);
        const ulong rows = A_START(a, a_panels, i, k0, lda, M, K);
        const ulong columns = (ulong)b_panels + place_of(j / BLOCK, k0, PANELS_OF(N), steps);
        compute_block(sum, rows, A_ROW(lda), columns, length, k0 == 0);
        if (k0 + KC >= steps) store_sums(sum, i, j, RESULT);
      }
  }
  release_tiles();
}
