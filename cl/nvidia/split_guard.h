/* split_guard: whether a product of parts may be computed from them (the bounds are in split.h).
 *
 *   float16 parts lose too much   their launch writes TF32 parts instead (split_all_to_tf32), for the next launch
 *   TF32 parts do, too            their launch multiplies element by element in float32
 *
 * Macros: SPLIT (split.h).
 */
#include "include/gemm.h"
#include "nvidia/ptx.h"
#include "nvidia/split.h"

/* --- Operands as sums of two TF32 ---------------------------------------------------------------------------
 *
 * The launch that finds float16 parts too inaccurate writes them, and the next launch multiplies them. They lie as split.cl
 * draws it, where the float16 parts, which are smaller, have been. `work_items`: the size of a work-group.
 *
 * Splits both operands. All work-groups of a product call this. */
INLINE void split_all_to_tf32(
    const Source a, const Source b, __global uchar *packed_a, __global uchar *packed_b, const long z,
    const int work_items)
{
  const long pitch_bytes = (a.depth + 15) / 16 * 128L;
  const int groups_a = line_groups(a.lines), groups = groups_a + line_groups(b.lines);
  for (int g = get_group_id(0); g < groups; g += get_num_groups(0)) {
    if (g < groups_a) pack_lines(a, packed_a + z * a.lines * pitch_bytes, pitch_bytes, g * LINES, work_items, 2);
    else pack_lines(b, packed_b + z * b.lines * pitch_bytes, pitch_bytes, (g - groups_a) * LINES, work_items, 2);
  }
}

/* --- The decision -------------------------------------------------------------------------------------------- */

#if SPLIT == 1
#define SPLIT_ARGS , __global const int *exponents, __global const int2 *quality, __global int *done

/* Whether the float16 parts of product z are accurate enough. Stores the answer in done[z]. */
INLINE bool half_parts_serve(
    __global const int2 *quality, __global int *done, const long z, const int rows, const int columns, const int depth,
    __local int *worst)
{
  const int groups_a = line_groups(rows), groups = groups_a + line_groups(columns);
  int mine[3] = {depth, depth, 0}; /* lowest scores of A and of B; 0: nothing is lossy, -1: something is */
  for (int g = get_local_id(0); g < groups; g += get_local_size(0)) {
    const int2 found = quality[z * groups + g];
    mine[g >= groups_a] = min(mine[g >= groups_a], found.x);
    mine[2] = min(mine[2], -found.y);
  }
  if (get_local_id(0) < 3) worst[get_local_id(0)] = depth;
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int i = 0; i < 3; ++i) {
    const int found = least(mine[i]);
    if (get_local_id(0) % SUB_GROUP == i % SUB_GROUP) atomic_min(&worst[i], found);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const bool serve = worst[2] == 0 || worst[0] + worst[1] >= depth;
  if (get_group_id(0) == 0 && get_local_id(0) == 0) done[z] = serve;
  return serve;
}
#elif SPLIT == 2
#define SPLIT_ARGS , __global const int *exponents, __global const int *done

/* Whether TF32 parts are accurate enough. They have float32's exponents, so they are unless a sum could overflow, an
 * operand is not finite, or a row or column is so small that its lo parts vanish. */
INLINE bool tf32_parts_serve(
    __global const int *exponents, const int rows, const int columns, const int depth, __local int *ends)
{
  int top[2] = {ZERO_LINE, ZERO_LINE}, bottom = 127;
  for (int i = get_local_id(0); i < rows + columns; i += get_local_size(0)) {
    top[i >= rows] = max(top[i >= rows], exponents[i]);
    if (exponents[i] != ZERO_LINE) bottom = min(bottom, exponents[i]);
  }
  if (get_local_id(0) < 3) ends[get_local_id(0)] = get_local_id(0) < 2 ? ZERO_LINE : 127;
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_max(&ends[0], top[0]);
  atomic_max(&ends[1], top[1]);
  atomic_min(&ends[2], bottom);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int a = ends[0] + 15, b = ends[1] + 15; /* magnitudes are below 2^a, 2^b */
  return a < 128 && b < 128 && a + b + 32 - (int)clz(depth) < 127 && ends[2] + 15 > -90;
}

/* Computes out by float32 multiplications and additions. All work-groups call this; a work-item computes an element
 * at a time. */
INLINE void multiply_plainly(
    __global const A_T *a, const long lda, __global const B_T *b, const long ldb, const int K, const int work_items,
    RESULT_ARGS)
{
  const long step = (long)get_num_groups(0) * work_items;
  for (long at = (long)get_group_id(0) * work_items + get_local_id(0); at < (long)M * N; at += step) {
    const int i = (int)(at / N), j = (int)(at % N);
    ACC_T acc = ACC_ZERO;
    for (int k = 0; k < K; ++k) acc = MAC(acc, LOAD_A(a, A_INDEX(i, k, lda)), LOAD_B(b, B_INDEX(k, j, ldb)));
    STORE_RESULT(i, j, acc, RESULT);
  }
}
#else
#define SPLIT_ARGS
#endif
