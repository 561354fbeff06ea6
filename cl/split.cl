/* split: operands as the matrix units multiply them, in one launch: lines along K, whichever way they lie
 * in memory, each element as a sum of parts, complex numbers as real ones.
 *
 *   packed_a line i, packed_b line j:  | hi of 64 bytes' k | lo of the same k | hi | lo | ..
 *
 *   SPLIT 0  one part: the element itself, k after k
 *         1  two float16: x 2^-e = hi + lo, e of the line (exponents), see split.h
 *         2  two TF32: x = hi + lo; nothing is done where done[z]
 *
 * Of complex operands the product is the real one of M x 2N x 2K,
 *
 *   A' line i                      re A(i,0)   im A(i,0)  re A(i,1)   im A(i,1) ..
 *   B' lines 2j, 2j+1 (columns)    re B(0,j)  -im B(0,j)  re B(1,j)  -im B(1,j) ..
 *                                  im B(0,j)   re B(0,j)  im B(1,j)   re B(1,j) ..
 *
 * whose columns 2j, 2j+1 are the parts of the complex result's column j.
 *
 *        k: 4  4  4  4 ..      A work-group has LINES lines, a work-item LINES x RUN elements of them at a
 *      +------------------     time, in registers. Once over them for the largest magnitudes, and back to
 *   8  | 0  1  2  3            split: the last ones are still there, the others in the cache.
 *
 * Macros: those of types.h, gemm.h and split.h; WIDE_A WIDE_B 1: each row of the operand starts on
 * a multiple of 16 bytes.
 */
#if !defined(WIDE_A) || !defined(WIDE_B)
#error "split.cl needs WIDE_A WIDE_B"
#endif
#define WORK_ITEMS 256
#define PART_BYTES (SPLIT == 1 ? 2 : 4)
#define PARTS (SPLIT ? 2 : 1)

#if SPLIT == 1
/* float16 bits of x, to nearest even, and back. */
inline ushort half_bits(const float x)
{
  ushort bits;
  vstore_half_rte(x, 0, (half *)&bits);
  return bits;
}
inline float half_value(const ushort bits) { return vload_half(0, (const half *)&bits); }
#elif SPLIT == 2
/* To ten bits of fraction, ties away from zero. */
inline float tf32(const float x) { return as_float(as_uint(x) + 0x1000 & 0xffffe000); }
#endif

/* RUN elements of a line, as parts, to where the first one's hi goes. */
INLINED void store_parts(__global uchar *to, const float x[RUN])
{
#if SPLIT == 1
  ushort hi[RUN], lo[RUN];
  #pragma unroll
  for (int i = 0; i < RUN; ++i) {
    hi[i] = half_bits(x[i]);
    lo[i] = half_bits(x[i] - half_value(hi[i]));
  }
  *(__global ushort4 *)to = (ushort4)(hi[0], hi[1], hi[2], hi[3]);
  *(__global ushort4 *)(to + 64) = (ushort4)(lo[0], lo[1], lo[2], lo[3]);
#else
  const float4 v = (float4)(x[0], x[1], x[2], x[3]);
#if SPLIT == 2
  const float4 hi = (float4)(tf32(v.x), tf32(v.y), tf32(v.z), tf32(v.w));
  const float4 lo = v - hi;
  *(__global float4 *)to = hi;
  *(__global float4 *)(to + 64) = (float4)(tf32(lo.x), tf32(lo.y), tf32(lo.z), tf32(lo.w));
#else
  *(__global float4 *)to = v;
#endif
#endif
}

#if SPLIT == 1
inline uint magnitude(const float x) { return as_uint(x) & 0x7fffffff; }

/* 2^-e, and e into `exponent`; both so that a line's largest magnitude comes to lie in [2^14, 2^15). */
inline float scale_of(const uint largest, int *exponent)
{
  *exponent = largest ? max((int)(largest >> 23) - 127 - 14, ZERO_LINE + 1) : ZERO_LINE;
  return as_float((uint)(127 - *exponent) << 23);
}

/* How well scaled elements suit float16 parts: see split.h. */
INLINED int score(const float x[RUN], int *lossy)
{
  int points = 0;
  #pragma unroll
  for (int i = 0; i < RUN; ++i) {
    const uint m = magnitude(x[i]);
    const int small = m - 1 < SMALL - 1; /* not zero */
    points += (m >= LARGE) - LOSS * small;
    *lossy |= small;
  }
  return points;
}

/* Splits LINES lines; exponents and `*quality` are theirs. Local memory: for each line, and one of `lossy`. */
INLINED void split_lines(
    const Source s, __global uchar *to, const long pitch, const int line, __global int *exponents,
    __global int2 *quality, __local uint *largest, __local int *points, __local int *lossy)
{
  const int id = get_local_id(0);
  const int end = (s.depth + 31) / 32 * 8; /* in runs: whole 64 bytes */
  const int last = id + (max(end - 1 - id, 0) / WORK_ITEMS) * WORK_ITEMS;
  float x[LINES][RUN];
  uint seen[LINES];
  if (id < LINES) largest[id] = points[id] = *lossy = 0;
  #pragma unroll
  for (int l = 0; l < LINES; ++l) seen[l] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int block = id; block <= last; block += WORK_ITEMS) {
    load_block(x, s, line, RUN * block);
    #pragma unroll
    for (int l = 0; l < LINES; ++l)
      #pragma unroll
      for (int i = 0; i < RUN; ++i) seen[l] = max(seen[l], magnitude(x[l][i]));
  }
  #pragma unroll
  for (int l = 0; l < LINES; ++l) {
    const uint found = most(seen[l]);
    if (id % SUB_GROUP == l % SUB_GROUP) atomic_max(&largest[l], found);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  int mine[LINES], lost = 0;
  #pragma unroll
  for (int l = 0; l < LINES; ++l) mine[l] = 0;
  for (int block = last; block >= id; block -= WORK_ITEMS) {
    if (block != last) load_block(x, s, line, RUN * block);
    #pragma unroll
    for (int l = 0; l < LINES; ++l) {
      int e;
      const float scale = scale_of(largest[l], &e);
      #pragma unroll
      for (int i = 0; i < RUN; ++i) x[l][i] *= scale;
      mine[l] += score(x[l], &lost);
      if (line + l < s.lines && block < end)
        store_parts(to + (line + l) * pitch * PART_BYTES + block / 8 * 128 + block % 8 * 8, x[l]);
    }
  }
  #pragma unroll
  for (int l = 0; l < LINES; ++l) {
    const int sum = total(mine[l]);
    if (id % SUB_GROUP == l % SUB_GROUP && sum) atomic_add(&points[l], sum);
  }
  if (lost) *lossy = 1;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (id == 0) {
    int2 worst = (int2)(s.depth, *lossy);
    for (int l = 0; l < LINES && line + l < s.lines; ++l) {
      int e;
      scale_of(largest[l], &e);
      exponents[line + l] = e;
      if (largest[l] >= 0x7f800000) worst = (int2)(NEVER, 1);
      else if (largest[l]) worst.x = min(worst.x, max(points[l], NEVER));
    }
    *quality = worst;
  }
}
#else
/* Splits LINES lines. */
INLINED void split_lines(const Source s, __global uchar *to, const long pitch, const int line)
{
  const int end = (s.depth + 15) / 16 * 4; /* in runs: whole 64 bytes */
  for (int block = get_local_id(0); block < end; block += WORK_ITEMS) {
    float x[LINES][RUN];
    load_block(x, s, line, RUN * block);
    #pragma unroll
    for (int l = 0; l < LINES; ++l)
      if (line + l < s.lines)
        store_parts(to + (line + l) * pitch * PART_BYTES + block / 4 * (64 * PARTS) + block % 4 * 16, x[l]);
  }
}
#endif

#if SPLIT == 1
#define MORE_ARGS , __global int *exponents, __global int2 *quality
#define MORE(rows) , exponents + z * (M + columns) + (rows), quality + z * get_num_groups(0) + group, \
  largest, points, &lossy
#elif SPLIT == 2
#define MORE_ARGS , __global const int *done
#define MORE(rows)
#else
#define MORE_ARGS
#define MORE(rows)
#endif

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void matmul_split(
    GEMM_ARGS, __global uchar *packed_a, __global uchar *packed_b, const long pitch MORE_ARGS)
{
#if SPLIT == 1
  __local uint largest[LINES];
  __local int points[LINES], lossy;
#endif
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  const int columns = COLUMNS, depth = DEPTH;
  const int groups_a = (M + LINES - 1) / LINES;
  const int group = get_group_id(0);
#if SPLIT == 2
  if (done[z]) return;
#endif
  if (group < groups_a) {
    const Source s = {(__global const float *)a, lda * PLANES, M, depth, WIDE_A, !TRANS_A, false, CONJ_A};
    split_lines(s, packed_a + z * M * pitch * PART_BYTES, pitch, group * LINES MORE(0));
  } else {
    const Source s = {(__global const float *)b, ldb * PLANES, columns, depth, WIDE_B, TRANS_B, true, CONJ_B};
    split_lines(s, packed_b + z * columns * pitch * PART_BYTES, pitch, (group - groups_a) * LINES MORE(M));
  }
}
