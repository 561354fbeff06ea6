/* packed, first step: copy A and B into the panels that packed_tile.h describes.
 *
 *        K                       panel p = rows p*MR .. p*MR + MR - 1, PADDED(K) * MR elements long
 *   +---------+                  work-group (q, r, z): steps r*chunk .. of panels q*span .., product z
 *   | panel 0 | MR rows          of the stack, STEPS at a time into one panel after the other
 *   +---------+
 *   | panel 1 |                  B likewise: panel p = columns p*NR .., K * NR elements long
 *   +---------+                  elements beyond the matrix are filled with zeros
 *
 * Contiguous memory is read in order: with many panels in a work-group if the operand is across K, with one panel
 * if it is along K.
 * A is packed a part at a time, so that its panels stay few. Each part uses the same memory.
 * Packing transposes, conjugates and converts to ACC_T, so later steps see one layout and one type.
 *
 * Macros: those of packed_tile.h.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/packed_tile.h"

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

__kernel ONE_WIDE_ITEM void pack_a(PACK_ARGS, PART_ARGS)
{
  GEMM_BEGIN;
  const int first = first_row + get_group_id(0) * span * MR, end = min(last_row, first + span * MR);
  const int k_begin = get_group_id(1) * chunk, k_end = min(K, k_begin + chunk);
  panels += (BATCH_ENTRY - first_entry) * stack;
  for (int k = k_begin; k < k_end; k += STEPS)
    for (int i0 = first; i0 < end; i0 += MR) {
      __global ACC_T *to = panels + (long)(i0 - first_row) * PADDED(K) + (long)k * MR;
      if (i0 + MR <= M && k + STEPS <= k_end) pack_full_rows(to, a, lda, i0, k);
      else pack_rows(to, a, lda, i0, min(MR, M - i0), k, min(STEPS, k_end - k));
    }
}

INLINE void pack_columns(
    __global ACC_T *to, __global const B_T *b, const long ldb, const int j0, const int cols,
    const int k, const int steps)
{
  for (int u = 0; u < steps; ++u)
    for (int j = 0; j < NR; ++j)
      to[u * NR + j] = j < cols ? LOAD_B(b, B_INDEX(k + u, j0 + j, ldb)) : ACC_ZERO;
}

INLINE void pack_full_columns(
    __global ACC_T *to, __global const B_T *b, const long ldb, const int j0, const int k)
{
#if TRANS_B
  for (int j = 0; j < NR; ++j)
    UNROLL for (int u = 0; u < STEPS; ++u)
#else
  for (int u = 0; u < STEPS; ++u)
    UNROLL for (int j = 0; j < NR; ++j)
#endif
      to[u * NR + j] = LOAD_B(b, B_INDEX(k + u, j0 + j, ldb));
}

__kernel ONE_WIDE_ITEM void pack_b(PACK_ARGS)
{
  GEMM_BEGIN;
  const int first = get_group_id(0) * span * NR, end = min(N, first + span * NR);
  const int k_begin = get_group_id(1) * chunk, k_end = min(K, k_begin + chunk);
  panels += get_global_id(2) * stack;
  for (int k = k_begin; k < k_end; k += STEPS)
    for (int j0 = first; j0 < end; j0 += NR) {
      __global ACC_T *to = panels + (long)j0 * K + (long)k * NR;
      if (j0 + NR <= N && k + STEPS <= k_end) pack_full_columns(to, b, ldb, j0, k);
      else pack_columns(to, b, ldb, j0, min(NR, N - j0), k, min(STEPS, k_end - k));
    }
}
