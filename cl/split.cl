/* split: float32 operands as sums of two float16 parts, in two launches.
 *
 *   x 2^-e = hi + lo + an error of at most 2^-22 |x 2^-e| or 2^-25
 *
 * with e of the row of A (the column of B), see split.h: the largest magnitude of a row comes to lie in
 * [2^14, 2^15). The parts lie as pack.cl's: lines along K, hi's of all lines, then lo's.
 *
 *   split_exponents  a work-group finds e of LINES_E rows of A or columns of B; clears peaks
 *   split_parts      a work-group splits LINES x LINES elements through local memory, and raises peaks
 *
 * Macros: those of types.h and gemm.h, with A_TYPE and B_TYPE float32.
 */
#define WORK_ITEMS 256
#define LINES 64
#define LINES_E 8
#define STEP_E (WORK_ITEMS / LINES_E)
#define IN_FLIGHT 8 /* loads at once */

inline uint magnitude(const float x) { return as_uint(x) & 0x7fffffff; }

inline int exponent_of(const uint largest)
{
  if (largest == 0) return ZERO_LINE;
  return max((int)(largest >> 23) - 127 - 14, ZERO_LINE + 1);
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void matmul_split_exponents(
    GEMM_ARGS, __global int *exponents, __global uint *peaks)
{
  __local uint largest[LINES_E];
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  const int id = get_local_id(0);
  const int groups_a = (M + LINES_E - 1) / LINES_E;
  const bool of_a = get_group_id(0) < groups_a;
  const int first = (get_group_id(0) - (of_a ? 0 : groups_a)) * LINES_E;
  const bool k_fast = of_a ? !TRANS_A : TRANS_B;
  const int lines = of_a ? M : N;
  const long ld = of_a ? lda : ldb;
  const int line = k_fast ? id / 32 : id % LINES_E;
  const int i = min(first + line, lines - 1);
  __global const float *from = (of_a ? a : b) + (k_fast ? i * ld : i);
  uint seen = 0;
  if (id < LINES_E) largest[id] = 0;
  for (int k = k_fast ? id % 32 : id / LINES_E; k < K; k += IN_FLIGHT * STEP_E) {
    uint some[IN_FLIGHT];
    #pragma unroll
    for (int u = 0; u < IN_FLIGHT; ++u) {
      const int at = min(k + u * STEP_E, K - 1); /* the last one again, rather than none */
      some[u] = magnitude(from[k_fast ? at : at * ld]);
    }
    #pragma unroll
    for (int u = 0; u < IN_FLIGHT; ++u) seen = max(seen, some[u]);
  }
  for (int k = get_group_id(0) * WORK_ITEMS + id; k < 2 * K; k += get_num_groups(0) * WORK_ITEMS)
    peaks[z * 2 * K + k] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_max(&largest[line], seen);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (id < LINES_E && first + id < lines)
    exponents[z * (M + N) + (of_a ? 0 : M) + first + id] = exponent_of(largest[id]);
}

/* float16 bits of x, to nearest even, and back. */
inline ushort half_bits(const float x)
{
  ushort bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
inline float half_value(const ushort bits)
{
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

__attribute__((always_inline)) inline void split_tile(
    __local float *buffer, __local float *scales, __local uint *most, __global const float *from, const long ld, const bool k_fast,
    __global ushort *to, const long pitch, __global const int *exponents, __global uint *peaks,
    const int lines, const int K, const int tile)
{
  const int id = get_local_id(0);
  const int tiles_k = (K + LINES - 1) / LINES;
  const int line0 = tile / tiles_k * LINES;
  const int k0 = tile % tiles_k * LINES;
  if (id < LINES) {
    most[id] = 0;
    if (line0 + id < lines) scales[id] = as_float((uint)(127 - exponents[line0 + id]) << 23);
  }
  for (int n = get_local_id(0); n < LINES * LINES; n += WORK_ITEMS) {
    const int fast = n % LINES;
    const int slow = n / LINES;
    const int line = line0 + (k_fast ? slow : fast);
    const int k = k0 + (k_fast ? fast : slow);
    if (line < lines && k < K)
      buffer[(line - line0) * (LINES + 1) + k - k0] = from[k_fast ? line * ld + k : k * ld + line];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const int k = k0 + id % 32 * 2; /* two elements a work-item: 4-byte stores */
  uint seen[2] = {0, 0};
  for (int l = id / 32; l < LINES; l += WORK_ITEMS / 32) {
    const int line = line0 + l;
    if (line >= lines || k >= K) continue;
    ushort2 hi = 0, lo = 0;
    for (int e = 0; e < 2 && k + e < K; ++e) {
      const float x = buffer[l * (LINES + 1) + k - k0 + e] * scales[l];
      const ushort h = half_bits(x);
      const ushort rest = half_bits(x - half_value(h));
      if (e == 0) hi.x = h, lo.x = rest;
      else hi.y = h, lo.y = rest;
      seen[e] = max(seen[e], magnitude(x));
    }
    *(__global ushort2 *)(to + line * pitch + k) = hi;
    *(__global ushort2 *)(to + (lines + line) * pitch + k) = lo;
  }
  atomic_max(&most[k - k0], seen[0]);
  atomic_max(&most[k - k0 + 1], seen[1]);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (id < LINES && k0 + id < K) atomic_max(&peaks[k0 + id], most[id]);
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void matmul_split_parts(
    GEMM_ARGS, __global ushort *packed_a, __global ushort *packed_b, const long pitch, const int tiles_a,
    const int tiles_b, __global const int *exponents, __global uint *peaks)
{
  __local float buffer[LINES * (LINES + 1)];
  __local float scales[LINES];
  __local uint most[LINES];
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  exponents += z * (M + N);
  peaks += z * 2 * K;
  for (int tile = get_group_id(0); tile < tiles_a + tiles_b; tile += get_num_groups(0)) {
    if (tile < tiles_a)
      split_tile(buffer, scales, most, a, lda, !TRANS_A, packed_a + z * 2 * M * pitch, pitch, exponents, peaks,
                 M, K, tile);
    else
      split_tile(buffer, scales, most, b, ldb, TRANS_B, packed_b + z * 2 * N * pitch, pitch, exponents + M,
                 peaks + K, N, K, tile - tiles_a);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
