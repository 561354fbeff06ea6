/* fragment_columns: stores fragments of out^T in out. A fragment's columns are rows of out, and its rows are contiguous
 * there.
 *
 *     work-item 4 g + t, block b of eight columns:   acc[4 b + 2 h + c] is at (i + ROW_STEP h, 8 b + 2 t + c)
 *
 * With LEFT_REGISTERS (fragment_rows.h), the rows of h = 0 and 1 are neighbours and are stored as pairs. With elements
 * of 4 bytes, four work-items then fill a sector of 32 bytes. Otherwise the eight work-items with different g fill it.
 *
 * Macros: those of fragment.h and fragment_rows.h.
 */
#include "nvidia/fragment.h"
#include "nvidia/fragment_rows.h"

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
