/* split: packs operands along K for matrix units, in one launch for both: each float32 as a sum of parts, complex
 * numbers as real ones. A line is a row of A or a column of B, however it is stored.
 *
 *   packed_a line i, packed_b line j:  | hi of 64 bytes of k | lo of the same k | hi | lo | ..
 *
 *   SPLIT 0  one part: the element itself, k after k
 *         1  two float16: x 2^-e = hi + lo, with an exponent e for each line (`exponents`), see split.h
 *
 * A complex product is computed as the real one of M x 2N x 2K:
 *
 *   A' line i                      re A(i,0)   im A(i,0)  re A(i,1)   im A(i,1) ..
 *   B' lines 2j, 2j+1 (columns)    re B(0,j)  -im B(0,j)  re B(1,j)  -im B(1,j) ..
 *                                  im B(0,j)   re B(0,j)  im B(1,j)   re B(1,j) ..
 *
 * Columns 2j and 2j+1 of its result are re and im of column j.
 *
 *        k: 4   4   4   4 ..    A work-group splits LINES lines. Each work-item holds HELD x RUN elements of them in
 *      +-------------------     registers at a time; the drawing shows their numbers.
 *   4  |  0   1   2   3
 *   4  | 256 257 258 259
 *
 * The exponent should bring a line's largest magnitude to the top of float16's range. Finding each maximum first would
 * read the data twice, so the exponent is estimated from the first 1,024 elements, with ROOM for larger ones. If an
 * element is larger still, the work-group finds the maxima and starts again.
 *
 * Macros: SPLIT 0, 1 and LINES (split.h); TRANS_A TRANS_B (gemm.h); CONJ_A CONJ_B (types.h); WIDE_A WIDE_B (split.h).
 * Technique: see split.h.
 */
#include "include/gemm.h"
#include "nvidia/ptx.h"
#include "nvidia/split.h"

#define STEP 256 /* runs of a line that a work-group holds at a time */
#define WORK_ITEMS (STEP * TEAMS)
#define ROOM 2 /* an element may be 2^ROOM times the largest of the first ones */

#if SPLIT == 1
/* x as float16 bits, rounded to nearest even, and back. */
INLINE ushort half_bits(const float x)
{
  ushort bits;
  vstore_half_rte(x, 0, (half *)&bits);
  return bits;
}
INLINE float half_value(const ushort bits) { return vload_half(0, (const half *)&bits); }

/* Stores RUN elements of a line as parts. `to`: where hi of the first one goes. */
INLINE void store_parts(__global uchar *to, const float x[RUN])
{
  ushort hi[RUN], lo[RUN];
  UNROLL for (int i = 0; i < RUN; ++i) {
    hi[i] = half_bits(x[i]);
    lo[i] = half_bits(x[i] - half_value(hi[i]));
  }
  *(__global ushort4 *)to = (ushort4)(hi[0], hi[1], hi[2], hi[3]);
  *(__global ushort4 *)(to + 64) = (ushort4)(lo[0], lo[1], lo[2], lo[3]);
}

/* The bits of |x|, which are ordered as |x| is. */
INLINE uint magnitude(const float x) { return as_uint(x) & 0x7fffffff; }
INLINE uint largest_of(const float x[RUN])
{
  return max(max(magnitude(x[0]), magnitude(x[1])), max(magnitude(x[2]), magnitude(x[3])));
}
/* The smallest magnitude that is not zero, less 1: 0 - 1 is the largest uint. */
INLINE uint smallest_of(const float x[RUN])
{
  return min(min(magnitude(x[0]) - 1, magnitude(x[1]) - 1), min(magnitude(x[2]) - 1, magnitude(x[3]) - 1));
}

/* Returns 2^-e and stores e in `exponent`, so that a line's largest magnitude is scaled into [2^14, 2^15), or `room`
 * powers of two below. */
INLINE float scale_of(const uint largest, const int room, int *exponent)
{
  *exponent = largest ? max((int)(largest >> 23) - 127 - 14 + room, ZERO_LINE + 1) : ZERO_LINE;
  return as_float((uint)(127 - *exponent) << 23);
}

/* How many scaled elements are LARGE, and how many are lossy: see split.h. */
INLINE int points_of(const float x[RUN])
{
  int points = 0;
  UNROLL for (int i = 0; i < RUN; ++i) points += fabs(x[i]) >= LARGE;
  return points;
}
INLINE int lossy_among(const float x[RUN])
{
  int lossy = 0;
  UNROLL for (int i = 0; i < RUN; ++i) lossy += magnitude(x[i]) - 1 < SMALL - 1;
  return lossy;
}

/* What a work-group knows of its lines. `over`: an element was larger than the estimate allows. */
typedef struct { uint largest[LINES]; int points[LINES], lossy, over; } Found;

/* Adds the work-items' largest magnitudes `seen` to `found`. A work-item has lines from `own` on. */
INLINE void find_largest(__local Found *found, const int own, const uint seen[HELD])
{
  UNROLL for (int l = 0; l < HELD; ++l) {
    const uint all = most(seen[l]);
    if (get_local_id(0) % SUB_GROUP == l % SUB_GROUP) atomic_max(&found->largest[own + l], all);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

/* Updates the largest magnitudes with the elements x. */
INLINE void see(uint seen[HELD], const float x[HELD][RUN])
{
  UNROLL for (int l = 0; l < HELD; ++l) seen[l] = max(seen[l], largest_of(x[l]));
}

/* Splits LINES lines. Writes their exponents and their `*quality` (split.h). */
INLINE void split_lines(
    const Source s, __global uchar *to, const long pitch, const int line, __global int *exponents,
    __global int2 *quality, __local Found *found)
{
  const int id = get_local_id(0);
  const int own = id / STEP * HELD, mine = line + own;
  const int end = (s.depth + 31) / 32 * 8; /* in runs: whole 64 bytes */
  float x[HELD][RUN];
  uint seen[HELD] = {0};
  if (id < LINES) found->largest[id] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  load_block(x, s, mine, RUN * (id % STEP));
  see(seen, x);
  find_largest(found, own, seen);
  bool held = true; /* x holds this work-item's first block */
  int room = end > STEP ? ROOM : 0;
  for (;;) {
    int points[HELD] = {0}, lossy = 0, over = 0;
    if (id < LINES) found->points[id] = found->lossy = found->over = 0;
    for (int block = id % STEP; block < end; block += STEP) {
      if (!held) load_block(x, s, mine, RUN * block);
      held = false;
      uint smallest = SMALL;
      __global uchar *at = to + mine * pitch * 2 + block / 8 * 128 + block % 8 * 8;
      UNROLL for (int l = 0; l < HELD; ++l, at += pitch * 2) {
        const uint largest = found->largest[own + l];
        int e;
        const float scale = scale_of(largest, room, &e);
        UNROLL for (int i = 0; i < RUN; ++i) x[l][i] *= scale;
        points[l] += points_of(x[l]);
        over |= largest_of(x[l]) >= (largest ? TOP : 1);
        smallest = min(smallest, smallest_of(x[l]));
        if (mine + l < s.lines) store_parts(at, x[l]);
      }
      if (smallest < SMALL - 1) { /* rare */
        lossy = 1;
        UNROLL for (int l = 0; l < HELD; ++l) points[l] -= LOSS * lossy_among(x[l]);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int l = 0; l < HELD; ++l) {
      const int sum = total(points[l]);
      if (id % SUB_GROUP == l % SUB_GROUP && sum) atomic_add(&found->points[own + l], sum);
    }
    if (lossy) found->lossy = 1;
    if (over) found->over = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!room || !found->over) break;
    room = 0;
    for (int block = id % STEP; block < end; block += STEP) {
      load_block(x, s, mine, RUN * block);
      see(seen, x);
    }
    find_largest(found, own, seen);
  }
  if (id == 0) {
    int2 worst = (int2)(s.depth, found->lossy);
    for (int l = 0; l < LINES && line + l < s.lines; ++l) {
      const uint largest = found->largest[l];
      int e;
      scale_of(largest, room, &e);
      exponents[line + l] = e;
      if (largest >= 0x7f800000) worst = (int2)(NEVER, 1);
      else if (largest) worst.x = min(worst.x, max(found->points[l], NEVER));
    }
    *quality = worst;
  }
}
#endif

#if SPLIT == 1
#define PART_BYTES 2
#define MORE_ARGS , __global int *exponents, __global int2 *quality
#else
#define PART_BYTES 4
#define MORE_ARGS
#endif

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_split(
    GEMM_ARGS, __global uchar *packed_a, __global uchar *packed_b, const long pitch MORE_ARGS)
{
#if SPLIT == 1
  __local Found found;
#endif
  GEMM_BEGIN;
  const long z = BATCH_ENTRY, line_bytes = pitch * PART_BYTES;
  const int columns = N * PLANES, depth = K * PLANES; /* of the real product */
  const long room = z * ROOM_OF_LINE(depth, line_bytes);
  const int groups_a = line_groups(M), group = get_group_id(0);
#if SPLIT == 1
  exponents += z * (M + columns);
  quality += z * get_num_groups(0) + group;
  if (group < groups_a)
    split_lines(source_a(a, lda, M, depth), packed_a + M * room, pitch, group * LINES, exponents, quality, &found);
  else
    split_lines(
        source_b(b, ldb, columns, depth), packed_b + columns * room, pitch, (group - groups_a) * LINES, exponents + M, quality,
        &found);
#else
  if (group < groups_a)
    pack_lines(source_a(a, lda, M, depth), packed_a + M * room, line_bytes, group * LINES, WORK_ITEMS, 1);
  else
    pack_lines(
        source_b(b, ldb, columns, depth), packed_b + columns * room, line_bytes, (group - groups_a) * LINES, WORK_ITEMS, 1);
#endif
}
