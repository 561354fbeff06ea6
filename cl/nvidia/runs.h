/* runs: weights of wgmma_quantized.cl on their way through local memory to registers.
 *
 * Macros: STEPS, most steps of a range; those of few_rows.h and weights.h.
 */
#include "nvidia/few_rows.h"

#ifndef STEPS
#error "runs.h needs STEPS"
#endif

/* Weights of 16 columns and a slice: parts of 16 bytes, a column's side by side. */
#define TEAM_BYTES (16 * BITS * 16)
#define COPIES ((16 * BITS + 31) / 32) /* of a work-item */
#define RUNS_BYTES (ITEMS / 32 * TEAM_BYTES)
#define RUNS_AT ((RESIDENT ? STEPS : STAGES) * A_BYTES) /* behind A */
#define BY_MATRICES (!RESIDENT && (BITS == 4 || BITS == 8))

/* Where part `part` of a sub-group's weights is. BY_MATRICES: the same part of eight columns in different banks. */
INLINE int place_of(const int part)
{
  return BY_MATRICES ? part ^ (BITS == 4 ? part / 8 % 4 : part / 8 % 8) : part;
}

/* The parts that a work-item copies: of its sub-group's 16 BITS every 32nd. */
typedef struct {
  __global const uchar *next[COPIES];
} weights_t;

INLINE weights_t weights_of(__global const uchar *b, const long ldb, const int j0, const int N, const int own_k)
{
  weights_t own;
  UNROLL for (int n = 0; n < COPIES; ++n) {
    const int part = OWN_LANE + 32 * n;
    own.next[n] = b + min(j0 + TEAM * 16 + part / BITS % 16, N - 1) * ldb + (long)(own_k / 8) * BITS + part % BITS * 16;
  }
  return own;
}

/* Where in local memory a sub-group's weights of a stage are. */
INLINE uint runs_at(const int stage) { return RUNS_AT + stage * RUNS_BYTES + get_local_id(0) / 32 * TEAM_BYTES; }

INLINE void copy_runs(weights_t *weights, const uint to, const bool wanted)
{
  UNROLL for (int n = 0; n < COPIES; ++n) {
    const int part = OWN_LANE + 32 * n;
    copy_async(to + place_of(part) * 16, weights->next[n], 16, 16, wanted && part < 16 * BITS);
    weights->next[n] += STEP / 8 * BITS;
  }
  copies_commit();
}

#if RESIDENT
/* Words of a run are read in parts. */
#if BITS % 4 == 0
typedef uint4 part_t;
#elif BITS % 2 == 0
typedef uint2 part_t;
#else
typedef uint part_t;
#endif

/* The weights 32 t .. of the 128 of a sub-group's columns g and g + 8. */
INLINE void take_weights(uint words[2][BITS], const uint from)
{
  const int each = sizeof(part_t) / 4;
  UNROLL for (int n = 0; n < 2; ++n)
    UNROLL for (int w = 0; w < BITS; w += each) {
      const part_t part = *(__local const part_t *)local_at(from + (OWN_LANE + 32 * n) * (4 * BITS) + w * 4);
      UNROLL for (int i = 0; i < each; ++i) words[n][w + i] = ((const uint *)&part)[i];
    }
}
#elif BITS == 4 || BITS == 8
/* Exchanges parts of two words with the work-item `distance` apart: that of 0 keeps the low ones (bytes 0 and 2, or half 0) of each
 * and gets the other's low ones as its high ones; the other has the high ones of both. */
INLINE void exchange(uint *v, uint *w, const int distance, const bool halves)
{
  const bool high = OWN_LANE & distance;
  const uint given = halves ? (high ? 0x5410 : 0x7632) : (high ? 0x6420 : 0x7531);
  const uint of_v = halves ? (high ? 0x3254 : 0x5410) : (high ? 0x3514 : 0x5240);
  const uint of_w = halves ? (high ? 0x3276 : 0x7610) : (high ? 0x3716 : 0x7260);
  const uint got = exchanged(chosen_bytes(*v, *w, given), distance);
  *v = chosen_bytes(*v, got, of_v);
  *w = chosen_bytes(*w, got, of_w);
}

/* Of the 128 weights of a sub-group's columns g and g + 8, 8 e + 2 t and 8 e + 2 t + 1, e = 0 .. 15. */
INLINE void take_weights(uint words[2][BITS], const uint from)
{
  const int column = OWN_LANE % 8, part = OWN_LANE / 8;
  UNROLL for (int n = 0; n < 2; ++n)
    UNROLL for (int m = 0; m < BITS; m += 4)
      load_matrices(words[n] + m, from + place_of((column + 8 * n) * BITS + part + m) * 16);
  UNROLL for (int distance = 1; distance < 4; distance *= 2)
    UNROLL for (int n = 0; n < 2; ++n)
      UNROLL for (int w = 0; w < BITS; w += 2)
        exchange(words[n] + w, words[n] + w + 1, distance, BITS == 8 || distance == 2);
}
#else
INLINE void take_column(uint *words, const uint from)
{
  uint all[4 * BITS];
  UNROLL for (int part = 0; part < BITS; ++part) {
    const uint4 four = load_four(from + part * 16);
    UNROLL for (int w = 0; w < 4; ++w) all[4 * part + w] = ((const uint *)&four)[w];
  }
  UNROLL for (int w = 0; w < BITS; ++w) words[w] = 0;
  UNROLL for (int e = 0; e < 16; ++e) {
    const int at = 8 * BITS * e, to = 2 * BITS * e; /* bits */
    const ulong eight = all[at / 32] | (ulong)all[min(at / 32 + 1, 4 * BITS - 1)] << 32;
    const uint pair = (uint)(eight >> (at % 32 + 2 * BITS * (OWN_LANE % 4))) & ((1u << 2 * BITS) - 1);
    words[to / 32] |= pair << to % 32;
    if (to % 32 + 2 * BITS > 32) words[to / 32 + 1] |= pair >> (32 - to % 32) % 32;
  }
}

INLINE void take_weights(uint words[2][BITS], const uint from)
{
  UNROLL for (int n = 0; n < 2; ++n) take_column(words[n], from + (OWN_LANE / 4 + 8 * n) * (16 * BITS));
}
#endif
