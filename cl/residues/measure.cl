/* measure: for each line of both operands, its s; for each work-group, the worst of its lines (residues.h).
 *
 *              k: ITEMS / LINES at a time        A work-group measures LINES lines. A work-item reads elements of one
 *            +---------------------------+       line, and begins anew where one is larger than all before. Neighbouring
 *      LINES |  0  1  2  3  ..  or  0 ..  |       work-items read neighbours in memory.
 *            +---------------------------+
 *
 * Macros: LINES, ITEMS (a multiple of LINES, of complex numbers of 2 LINES), those of gemm.h. Technique: see residues.h.
 */
#include "include/gemm.h"
#include "residues/lines.h"
#include "residues/residues.h"

#define TEAM (ITEMS / LINES) /* work-items of a line */
#define AHEAD 8 /* elements that a work-item loads at a time */
#define ROUNDS 16 /* of AHEAD elements; what they count fits a byte */
#define FAR 60 /* smaller elements, below 2^-FAR of the scale, add to no count and no sum (SLACK covers it) */

/* What a work-item has seen of its line. recent: counts that are not in line.counts yet, c_1 in the lowest byte. Common
 * elements are those with exponents from the line's scale down to FAR below it, but not below float64's own; `most` is the
 * upper word of the largest, `span` their range. Added to an upper word's last 29 bits and 3 more bits, `offset` makes a
 * float: the element by the line's scale. */
typedef struct { line_t line; ulong recent; uint most, span, offset; } seen_t;

/* Measures a line by a larger scale. */
INLINE void raise(line_t *line, const int scale)
{
  const int by = scale - line->scale;
  if (by <= 0) return;
  line->scale = scale;
  line->bits += by;
  UNROLL for (int r = LEVELS - 1; r >= 0; --r) { /* c_r were the numbers of elements of at least 2^(by - r) */
    int count = 0;
    UNROLL for (int q = 0; q < r; ++q) count = r - q == by ? line->counts[q] : count;
    line->counts[r] = count;
  }
  const float factor = by < 60 ? as_float((uint)(127 - by) << 23) : 0.0f;
  line->sum *= factor;
  line->squares *= factor * factor;
}

/* Adds recent counts to those of the line. */
INLINE void flush(seen_t *seen)
{
  UNROLL for (int r = 0; r < LEVELS; ++r) seen->line.counts[r] += (int)(seen->recent >> 8 * r & 0xff);
  seen->recent = 0;
}

/* Counts x, which is in [2^(-below - 1), 2^-below), and adds it to the sums. */
INLINE void account(seen_t *seen, const int below, const float x)
{
  seen->recent += (ulong)0x010101010101 << 8 * min(below, LEVELS);
  seen->line.sum += x;
  seen->line.squares += x * x;
}

/* Sees any element. `whole` and `exponent` are those of its significand. */
INLINE void see_any(seen_t *seen, const ulong whole, const int exponent, const bool finite)
{
  if (!whole) return;
  line_t *line = &seen->line;
  const int zeros = (int)clz(whole), size = exponent + 64 - zeros;
  if (size > line->scale || !finite) {
    flush(seen);
    if (line->scale == ZERO_LINE) line->scale = size;
    raise(line, finite ? size : NOT_FINITE);
    const int field = line->scale + 1022, least = max(1, field - FAR); /* of the largest, of the least common ones */
    const bool common = finite && least <= field;
    seen->most = common ? (uint)field << 20 | 0xfffff : 0xffffffffu;
    seen->span = common ? ((uint)(field + 1 - least) << 20) - 1 : 0;
    seen->offset = (uint)(126 - field) << 23;
  }
  const int below = line->scale - size;
  line->bits = max(line->bits, below + 1 + (int)clz(whole & -whole) - zeros);
  if (below <= FAR) account(seen, below, as_float((uint)(126 - below) << 23 | ((uint)(whole << zeros >> 40) & 0x7fffff)));
}

INLINE void see(seen_t *seen, const ulong bits)
{
  const uint low = (uint)bits, high = (uint)(bits >> 32) & 0x7fffffff, under = seen->most - high;
  int exponent;
  const ulong whole = significand(bits, &exponent);
  if (under > seen->span) {
    see_any(seen, whole, exponent, high < 0x7ff00000);
    return;
  }
  const int below = (int)(under >> 20);
  if (below + 53 > seen->line.bits) /* seldom, once a few elements are seen */
    seen->line.bits = max(seen->line.bits, below + 53 - 63 + (int)clz(whole & -whole));
  account(seen, below, as_float((high << 3 | low >> 29) + seen->offset));
}

/* Adds what another work-item knows of the same line. */
INLINE void add(line_t *line, __local const line_t *other)
{
  line_t more = *other;
  if (more.scale == ZERO_LINE) return;
  if (line->scale == ZERO_LINE) line->scale = more.scale;
  raise(line, more.scale);
  raise(&more, line->scale);
  line->bits = max(line->bits, more.bits);
  UNROLL for (int r = 0; r < LEVELS; ++r) line->counts[r] += more.counts[r];
  line->sum += more.sum;
  line->squares += more.squares;
}

__kernel WORK_GROUP(ITEMS, 1, 1) void residues_measure(GEMM_ARGS, __global int *scales, __global line_t *worst)
{
  __local line_t found[ITEMS];
  GEMM_BEGIN;
  const int id = get_local_id(0), groups_a = (M + LINES - 1) / LINES;
  const int group = get_group_id(0);
  const bool second = group >= groups_a;
  operand_t x;
  find_operand(&x, second, a, lda, b, ldb, M, N, K);
  const int own = x.across ? id % LINES : id / TEAM, first = x.across ? id / LINES : id % TEAM;
  const int line = (second ? group - groups_a : group) * LINES + own;
  seen_t seen = {{ZERO_LINE, 0, {0}, 0.0f, 0.0f}, 0, 0xffffffffu, 0, 0};
  __global const ulong *from = x.from + place_of(&x, line, first);
  const long step = step_of(&x, 0, TEAM);
  if (line < x.lines)
    for (int k = first, round = 1; k < x.depth; k += AHEAD * TEAM, ++round) {
      ulong bits[AHEAD];
      UNROLL for (int n = 0; n < AHEAD; ++n) bits[n] = k + n * TEAM < x.depth ? from[n * step] : 0;
      from += AHEAD * step;
      UNROLL for (int n = 0; n < AHEAD; ++n) see(&seen, bits[n]);
      if (round % ROUNDS == 0) flush(&seen);
    }
  flush(&seen);
  line_t mine = seen.line;
  found[own * TEAM + first] = mine;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (first == 0) {
    for (int other = 1; other < TEAM; ++other) add(&mine, &found[own * TEAM + other]);
    found[own * TEAM] = mine;
    if (line < x.lines) scales[BATCH_ENTRY * (M + N) + (second ? M : 0) + line] = mine.scale;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (id) return;
  line_t all;
  no_line(&all);
  for (int l = 0; l < LINES; ++l) {
    mine = found[l * TEAM];
    include(&all, &mine);
  }
  worst[BATCH_ENTRY * get_num_groups(0) + group] = all;
}
