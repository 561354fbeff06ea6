/* measure: for each line of both operands, its s; for each work-group, the worst of its lines (residues.h).
 *
 *              k: ITEMS / LINES at a time        A work-group measures LINES lines. A work-item reads elements of one
 *            +---------------------------+       line, and begins anew where one is larger than all before. Neighbouring
 *      LINES |  0  1  2  3  ..  or  0 ..  |       work-items read neighbours in memory.
 *            +---------------------------+
 *
 * Macros: LINES, ITEMS (a multiple of LINES), those of gemm.h. Technique: see residues.h.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "residues/lines.h"
#include "residues/residues.h"

#define TEAM (ITEMS / LINES) /* work-items of a line */
#define AHEAD 4 /* elements that a work-item loads at a time */

/* Measures a line from a larger scale. */
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

/* Adds an element to what is known of its line. */
INLINE void see(line_t *line, const ulong bits)
{
  int exponent;
  ulong whole = significand(bits, &exponent);
  if (!(whole >> 52)) { /* zero or subnormal */
    if (!whole) return;
    const int up = (int)clz(whole) - 11;
    whole <<= up;
    exponent -= up;
  }
  const bool finite = (bits >> 52 & 0x7ff) != 0x7ff;
  const int size = exponent + 53;
  if (size > line->scale || !finite) {
    if (line->scale == ZERO_LINE) line->scale = size;
    raise(line, finite ? size : NOT_FINITE);
  }
  const int below = line->scale - size; /* x is in [2^(-below - 1), 2^-below) */
  if (below + 53 > line->bits) /* seldom, once a few elements are seen */
    line->bits = max(line->bits, below + 53 - 63 + (int)clz(whole & -whole));
  UNROLL for (int r = 0; r < LEVELS; ++r) line->counts[r] += below <= r;
  if (below > 60) return; /* SLACK covers it */
  const float x = as_float((uint)(126 - below) << 23 | ((uint)(whole >> 29) & 0x7fffff));
  line->sum += x;
  line->squares += x * x;
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
  line_t mine = {ZERO_LINE, 0, {0}, 0.0f, 0.0f};
  if (line < x.lines)
    for (int k = first; k < x.depth; k += AHEAD * TEAM) {
      ulong bits[AHEAD];
      UNROLL for (int n = 0; n < AHEAD; ++n) {
        const int at = k + n * TEAM;
        bits[n] = at < x.depth ? bits_at(&x, line, at) : 0;
      }
      UNROLL for (int n = 0; n < AHEAD; ++n) see(&mine, bits[n]);
    }
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
