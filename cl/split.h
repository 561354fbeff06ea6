/* What a product of split float32 operands asks before it starts, and what it needs at its end.
 *
 * A row of A (a column of B) whose largest magnitude lies in [2^(e + 14), 2^(e + 15)) has exponent e in
 * `exponents` (M of A, then N of B); ZERO_LINE if it is all zero. NaN and infinity count as 2^128.
 *
 * Macros: SPLIT 0: the operands are not split
 *               1: as sums of two float16, each row and column scaled by 2^-e; peaks[k], peaks[K + k]:
 *                  the bits of the largest scaled magnitude in column k of A, in row k of B
 *               2: as sums of two TF32, unscaled; what is left over by 1
 */
#ifndef SPLIT
#error "split.h needs SPLIT"
#endif
#define ZERO_LINE (-127)
#define EXPONENTS (SPLIT == 1)

#if SPLIT == 1
#define SPLIT_ARGS , __global const int *exponents, __global const uint *peaks, __global int *done

/* Scaled float16 parts hold magnitudes of 2^15 down to 2^-2 in full. They serve if, at some k, both
 * operands have elements near the top: no product's sum then lives on what they lost. */
#define SPLIT_BEGIN                                                               \
  __global const int *row_exponents = exponents + z * (M + N);                    \
  __global const int *column_exponents = row_exponents + M;                       \
  __local uint best;                                                              \
  const bool serves = half_parts_serve(peaks + z * 2 * K, K, &best);              \
  if (get_group_id(0) == 0 && get_local_id(0) == 0) done[z] = serves;             \
  if (!serves) return

inline bool half_parts_serve(__global const uint *peaks, const int K, __local uint *best)
{
  uint mine = 0;
  for (int k = get_local_id(0); k < K; k += get_local_size(0)) {
    const float product = as_float(peaks[k]) * as_float(peaks[K + k]);
    mine = max(mine, peaks[k] < 0x7f800000 && peaks[K + k] < 0x7f800000 ? as_uint(product) : 0x7f800000);
  }
  if (get_local_id(0) == 0) *best = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (mine > *best) atomic_max(best, mine); /* few are: a read costs less than waiting in line */
  barrier(CLK_LOCAL_MEM_FENCE);
  return *best >= as_uint(0x1p20f) && *best < 0x7f800000;
}
#elif SPLIT == 2
#define SPLIT_ARGS , __global const int *exponents, __global const int *done

/* TF32 parts have float32's exponents. They serve unless a sum could overflow, an operand is not
 * finite, or one is so small that its low parts vanish; float32 multiplies and adds do the rest. */
#define SPLIT_BEGIN                                                                              \
  __local int top[2];                                                                            \
  if (done[z]) return;                                                                           \
  if (!tf32_parts_serve(exponents + z * (M + N), M, N, K, top)) {                                \
    for (int tile = get_group_id(0); (long)tile * WORK_ITEMS < (long)M * N; tile += get_num_groups(0)) \
      PLAIN_PRODUCTS(tile);                                                                      \
    return;                                                                                      \
  }

inline bool tf32_parts_serve(
    __global const int *exponents, const int M, const int N, const int K, __local int *top)
{
  int mine[2] = {ZERO_LINE, ZERO_LINE};
  for (int i = get_local_id(0); i < M + N; i += get_local_size(0))
    mine[i >= M] = max(mine[i >= M], exponents[i]);
  if (get_local_id(0) < 2) top[get_local_id(0)] = ZERO_LINE;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (mine[0] > top[0]) atomic_max(&top[0], mine[0]);
  if (mine[1] > top[1]) atomic_max(&top[1], mine[1]);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int a = top[0] + 15, b = top[1] + 15; /* magnitudes are under 2^a, 2^b */
  const bool finite = a < 128 && b < 128 && a + b + 32 - (int)clz(K) < 127;
  return finite && (a > -90 || top[0] == ZERO_LINE) && (b > -90 || top[1] == ZERO_LINE);
}

/* One element a work-item, by float32 multiplies and adds. */
#define PLAIN_PRODUCTS(tile)                                                          \
  do {                                                                                \
    const long at_ = (long)(tile) * WORK_ITEMS + get_local_id(0);                     \
    const int i_ = (int)(at_ / N), j_ = (int)(at_ % N);                               \
    if (i_ < M) {                                                                     \
      ACC_T acc_ = ACC_ZERO;                                                          \
      for (int k_ = 0; k_ < K; ++k_)                                                  \
        acc_ = MAC(acc_, LOAD_A(a, A_INDEX(i_, k_)), LOAD_B(b, B_INDEX(k_, j_)));     \
      STORE_RESULT(i_, j_, acc_);                                                     \
    }                                                                                 \
  } while (0)
#else
#define SPLIT_ARGS
#define SPLIT_BEGIN
#endif
