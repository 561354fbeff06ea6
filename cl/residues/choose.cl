/* choose: N, t_A and t_B from the lines of all products of a stack (residues.h). One work-group.
 *
 * Macros: MODULI, how many moduli there are; BITS_LIST: log2(P / 2) of the first 1, 2, .. of them; PER_MODULUS: products modulo each;
 * MOST_BITS of an element; ITEMS. For `limbs` (limbs.cl) there is one number in place of moduli: sums stay below 2^(its bits).
 * Technique: see residues.h.
 */
#include "residues/residues.h"

#define SLACK 1.016f /* for sums of floats, and for roundings of elements */
#define SLACK_BITS 0.02f /* for logarithms */
#define LEAST_BITS 34 /* of an operand that is rounded: SLACK relies on it */

__constant float half_bits[] = {BITS_LIST};

/* 2^-bits */
INLINE float part(const int bits) { return as_float((uint)(127 - bits) << 23); }

/* L of residues.h. */
INLINE float least_sum(__local const line_t *a, __local const line_t *b, const int depth)
{
  float sum = 0.0f;
  for (int r = 0; r < LEVELS; ++r)
    for (int q = 0; q < LEVELS; ++q) {
      const int halves = (r + 1) + (r < LEVELS - 1) + (q + 1) + (q < LEVELS - 1);
      sum += part(halves) * (float)max(0, a->counts[r] + (b->counts[q] - depth));
    }
  return sum;
}

/* Decides for operands of which a and b are the worst lines. The plan begins as N = 0. */
INLINE void choose(__local const line_t *a, __local const line_t *b, const int depth, __global plan_t *plan)
{
  if (a->scale == NOT_FINITE || b->scale == NOT_FINITE) return;
  if (a->scale == ZERO_LINE || b->scale == ZERO_LINE) {
    plan->count = 1;
    return;
  }
  const float most = SLACK * fmin(fmin(a->sum, b->sum), sqrt(a->squares) * sqrt(b->squares)); /* U */
  const float log_most = log2(most) + SLACK_BITS;
  if (a->scale + b->scale + log_most >= 1023.0f) return;
  const float allowed = fmax(8.0f, 0.25f * depth) * least_sum(a, b, depth) / SLACK;
  for (int n = 1; n <= MODULI; ++n) {
    const int bits = (int)floor(half_bits[n - 1] - SLACK_BITS - log_most); /* t_A + t_B */
    int bits_a = bits / 2;
    if (a->bits < bits_a) bits_a = a->bits;
    else if (b->bits < bits - bits_a) bits_a = bits - b->bits;
    bits_a = min(bits_a, MOST_BITS);
    const int bits_b = min(bits - bits_a, MOST_BITS);
    if (min(bits_a, bits_b) < 1) continue;
    const bool rounds_a = a->bits > bits_a, rounds_b = b->bits > bits_b;
    if ((rounds_a && bits_a < LEAST_BITS) || (rounds_b && bits_b < LEAST_BITS)) continue;
    float error = 0.0f; /* E, times 2^53 */
    if (rounds_a) error += 0x1p52f * part(bits_a) * b->sum;
    if (rounds_b) error += 0x1p52f * part(bits_b) * a->sum;
    if (rounds_a && rounds_b) error += 0x1p51f * part(bits_a) * part(bits_b) * depth;
    if (error * SLACK > allowed) continue;
    plan->bits_a = bits_a;
    plan->bits_b = bits_b;
    plan->count = n;
    return;
  }
}

/* worst: for each of `stack` products, what is known of groups_a groups of rows, then of groups_b of columns. */
__kernel WORK_GROUP(ITEMS, 1, 1) void residues_choose(
    __global const line_t *worst, __global plan_t *plan, const int groups_a, const int groups_b, const int depth,
    const int stack)
{
  __local line_t found[2 * ITEMS];
  const int id = get_local_id(0), each = groups_a + groups_b;
  line_t all[2];
  no_line(&all[0]);
  no_line(&all[1]);
  for (long at = id; at < (long)each * stack; at += ITEMS) {
    const line_t line = worst[at];
    include(&all[at % each >= groups_a], &line);
  }
  found[id] = all[0];
  found[ITEMS + id] = all[1];
  for (int left = ITEMS / 2; left; left /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < left)
      for (int which = 0; which < 2 * ITEMS; which += ITEMS) {
        line_t mine = found[which + id];
        const line_t other = found[which + id + left];
        include(&mine, &other);
        found[which + id] = mine;
      }
  }
  if (id) return;
  plan->count = plan->bits_a = plan->bits_b = 0;
  choose(&found[0], &found[ITEMS], depth, plan);
  plan->products = plan->count * PER_MODULUS;
}
