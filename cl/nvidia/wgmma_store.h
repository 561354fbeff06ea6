/* wgmma_store: the epilogue of wgmma.cl and its forms, from the registers of a quartet to global memory.
 *
 * SWAPPED 1: stores fragments of out^T in out. A fragment's columns are rows of out, and its rows are contiguous
 * there.
 *
 *     work-item 4 g + t, block b of eight columns:   acc[4 b + 2 h + c] is at (i + ROW_STEP h, 8 b + 2 t + c)
 *
 * With LEFT_REGISTERS (fragment_rows.h), the rows of h = 0 and 1 are neighbours and are stored as pairs. With elements
 * of 4 bytes, four work-items then fill a sector of 32 bytes. Otherwise the eight work-items with different g fill it.
 *
 * Macros: BM BN; those of fragment.h, fragment_rows.h and wgmma_multiply.h.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "nvidia/fragment.h"
#include "nvidia/fragment_rows.h"
#include "nvidia/wgmma_multiply.h"
#include "nvidia/work_pieces.h"

#if SWAPPED
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
#endif

/* Stores a quartet's sums of a product of the stack, with the epilogue. `part`: which quartet of the tile. */
INLINE void store_product(
    const wgmma_acc *acc, const piece_t piece, const int part, __global const long *batch_offsets, RESULT_ARGS)
{
  out += BATCH_OFFSET_OF(batch_offsets, BATCH_ENTRY + piece.layer, 3);
  c += BATCH_OFFSET_OF(batch_offsets, BATCH_ENTRY + piece.layer, 2);
  const int row = piece.origin.s0 + part * 64 + fragment_row(get_local_id(0) % 128);
  UNROLL for (int f = 0; f < FRAGMENTS; ++f) {
#if SWAPPED
    store_fragment_columns(row + 64 * f, piece.origin.s1, acc + f * WGMMA_ACC, BN / 8, RESULT);
#else
    store_fragments(row + 64 * f, ROW_STEP, piece.origin.s1, acc + f * WGMMA_ACC, BN / 8, RESULT);
#endif
  }
}

/* Stores a quartet's sums of a range of K, in the order of fragment_rows.h. split_k.cl adds them. */
INLINE void store_partial(
    const wgmma_acc *acc, const piece_t piece, const int part, const work_t work, __global wgmma_acc *partial)
{
  partial += partial_at(piece.tile - work.whole, work.tiles - work.whole, piece.range, work.split_k, BM * BN);
  __global wgmma_acc4 *to = (__global wgmma_acc4 *)(partial + part * (128 * ACCS)) + get_local_id(0) % 128;
  UNROLL for (int i = 0; i < ACCS / 4; ++i)
    to[128 * i] = (wgmma_acc4)(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
}
