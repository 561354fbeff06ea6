/* What a product of split operands asks before it starts: whether it is its turn. Bounds in split.h. The product of
 * float16 parts, where they do not serve, makes TF32 parts instead, for the next launch (split_tf32.h).
 *
 * Macros: those of split.h. z, columns and depth are known before, and WORK_ITEMS. A kernel begins with SPLIT_FIRST;
 * SPLIT_THEN comes before its products, and may come after it has begun to copy: it ends that by `leave`.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/gemm.h"
#include "nvidia/ptx_group.h"
#include "nvidia/split.h"
#include "nvidia/split_read.h"
#include "nvidia/split_tf32.h"

#if SPLIT == 1
#define SPLIT_ARGS , __global const int *exponents, __global const int2 *quality, __global int *done

#define SPLIT_FIRST exponents += z * (M + columns)
#define SPLIT_THEN(leave)                                                         \
  __local int worst[3];                                                           \
  const bool serves = half_parts_serve(quality, z, M, columns, depth, worst);     \
  if (get_group_id(0) == 0 && get_local_id(0) == 0) done[z] = serves;             \
  if (!serves) {                                                                  \
    leave;                                                                        \
    const Source s_a_ = SOURCE_A, s_b_ = SOURCE_B;                                \
    split_all_to_tf32(s_a_, s_b_, packed_a, packed_b, z, WORK_ITEMS);             \
    return;                                                                       \
  }

static inline bool half_parts_serve(
    __global const int2 *quality, const long z, const int rows, const int columns, const int depth,
    __local int *worst)
{
  const int groups_a = line_groups(rows), groups = groups_a + line_groups(columns);
  int mine[3] = {depth, depth, 0}; /* the scores of A and of B, and whether nothing (0) is lossy */
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
  return worst[2] == 0 || worst[0] + worst[1] >= depth;
}
#elif SPLIT == 2
#define SPLIT_ARGS , __global const int *exponents, __global const int *done

/* TF32 parts have float32's exponents. They serve unless a sum could overflow, an operand is not
 * finite, or a line is so small that its low parts vanish; float32 multiplies and adds do the rest. */
#define SPLIT_FIRST                                                                              \
  __local int ends[3];                                                                           \
  if (done[z]) return;                                                                           \
  if (!tf32_parts_serve(exponents + z * (M + columns), M, columns, depth, ends)) {               \
    for (int tile = get_group_id(0); (long)tile * WORK_ITEMS < (long)M * N; tile += get_num_groups(0)) \
      PLAIN_PRODUCTS(tile);                                                                      \
    return;                                                                                      \
  }
#define SPLIT_THEN(leave)

static inline bool tf32_parts_serve(
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
  const int a = ends[0] + 15, b = ends[1] + 15; /* magnitudes are under 2^a, 2^b */
  return a < 128 && b < 128 && a + b + 32 - (int)clz(depth) < 127 && ends[2] + 15 > -90;
}

/* One element a work-item, by float32 multiplies and adds. */
#define PLAIN_PRODUCTS(tile)                                                          \
  do {                                                                                \
    const long at_ = (long)(tile) * WORK_ITEMS + get_local_id(0);                     \
    const int i_ = (int)(at_ / N), j_ = (int)(at_ % N);                               \
    if (i_ < M) {                                                                     \
      ACC_T acc_ = ACC_ZERO;                                                          \
      for (int k_ = 0; k_ < K; ++k_)                                                  \
        acc_ = MAC(acc_, LOAD_A(a, A_INDEX(i_, k_, lda)), LOAD_B(b, B_INDEX(k_, j_, ldb)));\
      store_result(i_, j_, acc_, RESULT);                                             \
    }                                                                                 \
  } while (0)
#else
#define SPLIT_ARGS
#define SPLIT_FIRST
#define SPLIT_THEN(leave)
#endif
