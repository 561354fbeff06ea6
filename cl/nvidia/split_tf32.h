/* split_tf32: operands as sums of two TF32, x = hi + lo, unscaled. The launch that finds float16 parts too inaccurate
 * writes them, and the next launch multiplies them. They lie as split.cl draws it, where the float16 parts, which are
 * smaller, have been.
 *
 * Macros: those of split_read.h. `work_items`: the size of a work-group.
 */
#include "nvidia/split.h"
#include "nvidia/split_read.h"

/* Rounds x to ten bits of fraction, ties away from zero. */
INLINE float tf32(const float x) { return as_float(as_uint(x) + 0x1000 & 0xffffe000); }

/* Splits LINES lines. */
INLINE void split_to_tf32(
    const Source s, __global uchar *to, const long pitch_bytes, const int line, const int work_items)
{
  const int end = (s.depth + 15) / 16 * 4; /* in runs: whole 64 bytes */
  const int step = work_items / TEAMS;
  const int mine = line + get_local_id(0) / step * HELD;
  for (int block = get_local_id(0) % step; block < end; block += step) {
    float x[HELD][RUN];
    load_block(x, s, mine, RUN * block);
    UNROLL for (int l = 0; l < HELD; ++l) {
      const float4 v = (float4)(x[l][0], x[l][1], x[l][2], x[l][3]);
      const float4 hi = (float4)(tf32(v.x), tf32(v.y), tf32(v.z), tf32(v.w));
      const float4 lo = v - hi;
      __global float4 *at = (__global float4 *)(to + (mine + l) * pitch_bytes + block / 4 * 128L + block % 4 * 16);
      if (mine + l >= s.lines) continue;
      at[0] = hi;
      at[4] = (float4)(tf32(lo.x), tf32(lo.y), tf32(lo.z), tf32(lo.w));
    }
  }
}

/* Splits both operands. All work-groups of a product call this. */
INLINE void split_all_to_tf32(
    const Source a, const Source b, __global uchar *packed_a, __global uchar *packed_b, const long z,
    const int work_items)
{
  const long pitch_bytes = (a.depth + 15) / 16 * 128L;
  const int groups_a = line_groups(a.lines), groups = groups_a + line_groups(b.lines);
  for (int g = get_group_id(0); g < groups; g += get_num_groups(0)) {
    if (g < groups_a) split_to_tf32(a, packed_a + z * a.lines * pitch_bytes, pitch_bytes, g * LINES, work_items);
    else split_to_tf32(b, packed_b + z * b.lines * pitch_bytes, pitch_bytes, (g - groups_a) * LINES, work_items);
  }
}
