/* packed, first step: copy A and B into the panels that packed_tile.h describes. With PACK_B 2 that of B is a function.
 *
 *        K                       panel p = rows p*MR .. p*MR + MR - 1, PADDED(K) * MR elements long
 *   +---------+                  work-group (q, r, z): steps r*chunk .. of panels q*span .., product z
 *   | panel 0 | MR rows          of the stack, STEPS at a time into one panel after the other
 *   +---------+
 *   | panel 1 |                  B likewise: panel p = columns p*NR .., K * NR elements long
 *   +---------+                  rows of A beyond the matrix are zeros
 *
 * Contiguous memory is read in order: with many panels in a work-group if the operand is across K, with one panel
 * if it is along K.
 * Columns of B along K are turned in registers (turn.h), if they are not also widened. That is two to three times as
 * fast as one number after the other.
 * A is packed a part at a time, so that its panels stay few. Each part uses the same memory.
 * Packing transposes, conjugates and converts to ACC_T, so later steps see one layout and one type.
 *
 * Macros: SWAPPED (packed.cl); those of packed_tile.h.
 */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/packed_tile.h"
#include "cpu/turn.h"

#define PACKED_BEGIN GEMM_BEGIN_WITH(SWAPPED, !SWAPPED) /* SWAPPED 1: `a` is the caller's b */

#define STEPS 16 /* a multiple of UNROLL_K; a cache line of float32 */
#define PADDED(k) (((k) + UNROLL_K - 1) / UNROLL_K * UNROLL_K)

#define PACK_ARGS \
  GEMM_ARGS, const int chunk, const int span, __global ACC_T *panels, const long stack

/* A part: rows first_row (a multiple of MR) to last_row - 1 of the products from first_entry on. Panels begin there. */
#define PART_ARGS const int first_row, const int last_row, const int first_entry

/* The place of step k of row i in a panel of A. */
#if TRANS_A
#define PLACE_A(i, k) ((k) * MR + (i))
#else
#define PLACE_A(i, k) ((k) / UNROLL_K * UNROLL_K * MR + (i) * UNROLL_K + (k) % UNROLL_K)
#endif

INLINE void pack_rows(
    __global ACC_T *to, __global const A_T *a, const long lda, const int i0, const int rows,
    const int k, const int steps)
{
  for (int u = 0; u < PADDED(steps); ++u)
    for (int i = 0; i < MR; ++i)
      to[PLACE_A(i, u)] = i < rows && u < steps ? LOAD_A(a, A_INDEX(i0 + i, k + u, lda)) : ACC_ZERO;
}

/* The same for MR rows and STEPS steps inside the matrix, in the order in which A is stored. */
INLINE void pack_full_rows(
    __global ACC_T *to, __global const A_T *a, const long lda, const int i0, const int k)
{
#if TRANS_A
  for (int u = 0; u < STEPS; ++u)
    UNROLL for (int i = 0; i < MR; ++i)
#else
  for (int i = 0; i < MR; ++i)
    UNROLL for (int u = 0; u < STEPS; ++u)
#endif
      to[PLACE_A(i, u)] = LOAD_A(a, A_INDEX(i0 + i, k + u, lda));
}

#if !LISTED
WORK_OF_ENTRY void pack_panels_of_a(
    __global ACC_T *panels, __global const A_T *a, const long lda, const int M, const int K, const int first_row,
    const int first, const int end, const int k_begin, const int k_end)
{
  for (int k = k_begin; k < k_end; k += STEPS)
    for (int i0 = first; i0 < end; i0 += MR) {
      __global ACC_T *to = panels + (long)(i0 - first_row) * PADDED(K) + (long)k * MR;
      if (i0 + MR <= M && k + STEPS <= k_end) pack_full_rows(to, a, lda, i0, k);
      else pack_rows(to, a, lda, i0, min(MR, M - i0), k, min(STEPS, k_end - k));
    }
}

__kernel ONE_WIDE_ITEM void pack_a(PACK_ARGS, PART_ARGS)
{
  PACKED_BEGIN;
  const int first = first_row + get_group_id(0) * span * MR, k_begin = get_group_id(1) * chunk;
  panels += (BATCH_ENTRY - first_entry) * stack;
  pack_panels_of_a(
      panels, a, lda, M, K, first_row, first, min(last_row, first + span * MR), k_begin, min(K, k_begin + chunk));
}

#endif

/* 1: columns of B lie along K and are turned in registers, as they need not be widened. */
#define TURNS_B (TRANS_B && PLANES == 1 && SAME_TYPE(B_TYPE, ACC_TYPE))

#if TURNS_B
/* LANES columns, as many steps as fit: returns their number. Columns past *last* repeat it. */
INLINE int turn_columns(B_SPACE REAL *to, __global const REAL *b, const long ldb, const int last, const int steps)
{
  int u = 0;
  for (; u + PER_LANE <= steps; u += PER_LANE) {
    VEC x[PER_LANE];
    UNROLL for (int q = 0; q < PER_LANE; ++q) {
#define COLUMN(at) *(__global const LANE *)(b + min((at) + q, last) * ldb + u)
      x[q] = (VEC)(LANES_IN(COLUMN));
#undef COLUMN
    }
    turn_lanes(x);
    UNROLL for (int q = 0; q < PER_LANE; ++q) *(B_SPACE VEC *)(to + (u + q) * NR) = x[q];
  }
  return u;
}
#endif

/* Steps k to k + steps - 1 of columns j0 to j0 + cols - 1. The others, whose sums are not stored, repeat the last one or
 * are zero. */
INLINE void pack_columns(
    B_SPACE ACC_T *to, __global const B_T *b, const long ldb, const int j0, const int cols,
    const int k, const int steps)
{
#if TURNS_B
  for (int j = 0; j < NR; j += LANES) {
    __global const REAL *from = (__global const REAL *)b + B_INDEX(k, j0 + j, ldb);
    int u = 0; /* two calls, as one compiles to fewer instructions where all columns are there */
    if (j + LANES <= cols) u = turn_columns(to + j, from, ldb, LANES - 1, steps);
    else if (j < cols) u = turn_columns(to + j, from, ldb, cols - 1 - j, steps);
    for (; u < steps; ++u)
      for (int s = j; s < j + LANES; ++s)
        to[u * NR + s] = s < cols ? LOAD_B(b, B_INDEX(k + u, j0 + s, ldb)) : ACC_ZERO;
  }
#else
  for (int u = 0; u < steps; ++u)
    for (int j = 0; j < NR; ++j)
      to[u * NR + j] = j < cols ? LOAD_B(b, B_INDEX(k + u, j0 + j, ldb)) : ACC_ZERO;
#endif
}

/* The same for NR columns and STEPS steps inside the matrix, in the order in which B is stored. */
INLINE void pack_full_columns(
    B_SPACE ACC_T *to, __global const B_T *b, const long ldb, const int j0, const int k)
{
#if TURNS_B
  pack_columns(to, b, ldb, j0, NR, k, STEPS);
#else
#if TRANS_B
  for (int j = 0; j < NR; ++j)
    UNROLL for (int u = 0; u < STEPS; ++u)
#else
  for (int u = 0; u < STEPS; ++u)
    UNROLL for (int j = 0; j < NR; ++j)
#endif
      to[u * NR + j] = LOAD_B(b, B_INDEX(k + u, j0 + j, ldb));
#endif
}

/* Steps k to k_end - 1, at most STEPS, of NR columns. */
INLINE void pack_steps_of_b(
    B_SPACE ACC_T *to, __global const B_T *b, const long ldb, const int N, const int j0, const int k, const int k_end)
{
  if (j0 + NR <= N && k + STEPS <= k_end) pack_full_columns(to, b, ldb, j0, k);
  else pack_columns(to, b, ldb, j0, min(NR, N - j0), k, min(STEPS, k_end - k));
}

#if PACK_B == 2
INLINE void pack_panel(
    __local ACC_T *to, __global const B_T *b, const long ldb, const int N, const int j0, const int k0, const int k_end)
{
  for (int k = k0; k < k_end; k += STEPS) pack_steps_of_b(to + (k - k0) * NR, b, ldb, N, j0, k, k_end);
}
#elif !LISTED
WORK_OF_ENTRY void pack_panels_of_b(
    __global ACC_T *panels, __global const B_T *b, const long ldb, const int N, const int K, const int first, const int end,
    const int k_begin, const int k_end)
{
  for (int k = k_begin; k < k_end; k += STEPS)
    for (int j0 = first; j0 < end; j0 += NR)
      pack_steps_of_b(panels + (long)j0 * K + (long)k * NR, b, ldb, N, j0, k, k_end);
}

__kernel ONE_WIDE_ITEM void pack_b(PACK_ARGS)
{
  PACKED_BEGIN;
  const int first = get_group_id(0) * span * NR, k_begin = get_group_id(1) * chunk;
  panels += get_global_id(2) * stack;
  pack_panels_of_b(panels, b, ldb, N, K, first, min(N, first + span * NR), k_begin, min(K, k_begin + chunk));
}
#endif
