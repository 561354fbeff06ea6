/* add_partial_sums: the second launch of split-K on CPUs. It adds the partial sums of each piece of the result, in
 * the order of K, and stores them.
 *
 * A work-group, which is one work-item, adds `span` of `pieces` pieces of PIECE_VECS vectors (partial_sums.h).
 *
 * The header included before this one defines PIECE_VECS and store_piece. Macros: SPLIT, 1: split-K is used, 0: not;
 * those of vectors.h.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "cpu/vectors.h"

#if !defined(SPLIT) || !defined(PIECE_VECS)
#error "add_partial_sums.h needs SPLIT PIECE_VECS"
#endif

#if SPLIT
__kernel ONE_WIDE_ITEM void add_partial_sums(
    GEMM_ARGS, const int split_k, const int pieces, const int span, __global const VEC *partial)
{
  GEMM_BEGIN;
  const int first = get_group_id(0) * span;
  for (int piece = first; piece < min(pieces, first + span); ++piece) {
    VEC sum[PIECE_VECS];
    UNROLL for (int v = 0; v < PIECE_VECS; ++v) sum[v] = (VEC)(0);
    for (int range = 0; range < split_k; ++range) {
      __global const VEC *sums = partial + partial_at(range, split_k, piece, pieces, PIECE_VECS);
      UNROLL for (int v = 0; v < PIECE_VECS; ++v) sum[v] += sums[v];
    }
    store_piece(sum, piece, RESULT);
  }
}
#endif
