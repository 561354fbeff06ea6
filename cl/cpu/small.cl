/* small: out = A B with few rows and columns, of a long stack or along a long K, for CPU devices. Work-groups take
 * longer to start than such products take.
 *
 *   work-group (chunk, range of K)      z0 z0+1 z0+2          z1-1
 *   computes `span` parts of the      | #  | #  | #  |  ...  | #  |    # TM x TN sums in registers at a time
 *   stack, one after the other
 *
 * ACROSS 1: a part is one product, and any layout is read in place. ACROSS > 1: elements of neighbours in the stack are
 * near in memory (sums along the middle of an array). Then so many products are computed together, by vectors. The
 * stack is rows of `inner` products, a row is `parts` parts. The last products of a part overlap those before: they are
 * computed twice. small_tile.h has the sums of a tile.
 *
 * With SPLIT 1 there are several ranges of K (last_range.h). Sum (i, j) of product z is number (z * M + i) * N + j.
 *
 * Macros: TM, TN, the tile; SPLIT 0, 1; ACROSS; GAPS_A, GAPS_B of dots_across.h; LANES, numbers in a vector, 1: none; those of gemm.h, and with LANES > 1 of
 * vectors.h; CHAINS, sums that are computed together, and IN_K 0, 1: of one result. Rows and columns past the last one repeat
 * it, and are not stored.
 * Preconditions: with IN_K 1 ACROSS 1 and REPRODUCIBLE 0; with IN_K 0 CHAINS 1 unless TM, TN and LANES are; with ACROSS > 1
 * SPLIT 0, no C (it would be added twice), a part has ACROSS products; with ACROSS 1 and LANES > 1 B is not transposed,
 * TN <= N, LANES <= TN + ldb, and numbers are real.
 */
#if !defined(TM) || !defined(TN) || !defined(SPLIT) || !defined(ACROSS) || !defined(LANES) || !defined(CHAINS) || \
    !defined(IN_K)
#error "small.cl needs TM TN SPLIT ACROSS LANES CHAINS IN_K"
#endif
#include "cpu/last_range.h"
#include "cpu/small_tile.h"

#define SMALL_ARGS                                                                                             \
  GEMM_ARGS, const int stack, const int inner, const int parts, const int span, const int k_range RANGE_ARGS
/* From product z to the next one in its row of the stack, in A (0), B (1) and out (3). */
#define STEP_IN(array, z) (BATCH_OFFSET_OF(batch_offsets, (z) + 1, array) - BATCH_OFFSET_OF(batch_offsets, z, array))
/* RESULT of the product that is v behind z in its row. */
#define OUT_AT(z, v)                                                                        \
  (ACROSS > 1 ? BATCH_OFFSET_OF(batch_offsets, z, 3) + (v) * STEP_IN(3, z) : BATCH_OFFSET_OF(batch_offsets, (z) + (v), 3))
#define RESULT_OF(z, v)                                                                                         \
  M, N, out + out_offset + OUT_AT(z, v), ldo, C_AT(BATCH_OFFSET_OF(batch_offsets, (z) + (v), 2)), c_rs, c_cs, \
    BIAS_AT(0), bias_stride, alpha, beta

INLINE void store_sum(const int i, const int j, const ACC_T sum, RESULT_ARGS) { STORE_RESULT(i, j, sum, RESULT); }

/* Where part p of a row of the stack begins. */
INLINE int part_at(const int p, const int inner, const int parts) { return (int)((long)p * inner / parts); }

__kernel ONE_ITEM void matmul_small(SMALL_ARGS)
{
  if (GATE_SHUT) return;
  const int first = get_group_id(0) * span, last = first + min(span, stack / inner * parts - first);
  const int range = get_group_id(1), k0 = range * k_range, k1 = k0 + min(k_range, K - k0);
  for (int part = first; part < last; part += PLACES) {
    const int row = part / parts * inner;
    const int end = ACROSS > 1 ? row + part_at(part % parts + 1, inner, parts) : min(last, part + PLACES);
    for (int z = row + part_at(part % parts, inner, parts); z < end; z += TOGETHER) {
      if (ACROSS > 1) z = min(z, end - ACROSS);
      const int count = PLACES == 1 ? ACROSS : min(PLACES, end - z);
      __global const A_T *as[PLACES];
      __global const B_T *bs[PLACES];
      UNROLL for (int v = 0; v < PLACES; ++v) { /* past the last one: that again, and not stored */
        as[v] = a + a_offset + BATCH_OFFSET_OF(batch_offsets, z + min(v, count - 1), 0);
        bs[v] = b + b_offset + BATCH_OFFSET_OF(batch_offsets, z + min(v, count - 1), 1);
      }
      for (int i0 = 0; i0 < M; i0 += TM)
        for (int j0 = 0; j0 < N; j0 += TN) {
          ACC_T sums[TM][TN][TOGETHER];
          const int from = VEC_N ? min(j0, N - TN) : j0; /* the last columns overlap those before */
          const long near_a = ACROSS > 1 ? STEP_IN(0, z) : 0, near_b = ACROSS > 1 ? STEP_IN(1, z) : 0;
          tile(sums, as, lda, near_a, bs, ldb, near_b, i0, from, M, N, k0, k1);
          for (int i = i0; i < min(M, i0 + TM); ++i)
            for (int j = j0; j < min(N, j0 + TN); ++j)
              BY_NUMBERS for (int v = 0; v < count; ++v) {
#if SPLIT
                partial[(range * (long)stack + z + v) * M * N + i * N + j] = sums[i - i0][j - from][v];
#else
                store_sum(i, j, sums[i - i0][j - from][v], RESULT_OF(z, v));
#endif
              }
        }
    }
  }
#if SPLIT
  if (!ends_last(arrived + get_group_id(0), get_num_groups(1))) return;
  for (int z = first; z < last; ++z)
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N; ++j)
        store_sum(i, j, sum_of_ranges(partial + ((long)z * M + i) * N + j, (long)stack * M * N), RESULT_OF(z, 0));
#endif
}
