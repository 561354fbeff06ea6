/* split: float32 operands as sums of two parts. split.cl makes them, split_guard.h decides whether they are used. Also how
 * HELD x RUN elements of an operand are read, complex numbers as real ones, and packed as float32 or as two TF32.
 *
 * A line is a row of A or a column of B. It has an exponent e in `exponents` (M of A, then those of B): its magnitudes
 * are below 2^(e + 15), the largest usually at least 2^(e + 12). ZERO_LINE: all elements are zero. NaN and infinity
 * count as 2^128.
 *
 * Macros: SPLIT 0: the operands are not split
 *               1: sums of two float16, each line scaled by 2^-e
 *               2: sums of two TF32, unscaled, where float16 parts lose too much
 *         LINES 4, 8: lines that a work-group splits
 *         WIDE_A WIDE_B 1: each row of the operand, as it is stored, begins on a multiple of 16 bytes
 *         TRANS_A TRANS_B (gemm.h); CONJ_A CONJ_B (types.h)
 *
 * What float16 parts keep. x' = 2^-e x, |x'| < 2^15, becomes hi + lo with an error of at most 2^-22 |x'|, or 2^-25 if
 * |x'| < SMALL = 2^-3. An element below SMALL, and not zero, is lossy. A line with n lossy elements and c elements of
 * at least LARGE = 2^5 has the score c - LOSS n, where LOSS = 4. Row i and column j with
 *
 *     score_i + score_j >= K,    that is    c_i + c_j - K >= 4 (n_i + n_j),
 *
 * have at least c_i + c_j - K values of k at which both are large. So what the lossy elements lose is within the bound:
 *
 *     2^-25 2^15 (n_i + n_j) <= 2^-12 (c_i + c_j - K) <= 2^-22 sum_k |a'_ik b'_kj|
 *
 * Float16 parts are used if the lowest scores of both operands add up to K or more, or if nothing is lossy. Then no
 * element of the result is off by more than 2^-20 sum |a b|, plus the error of float32 sums.
 *
 * quality: for each LINES lines, their lowest score (NEVER if an element is not finite), and whether anything is lossy.
 *
 * Technique: hi and lo parts, with sums outside of the matrix units, as in Ootomo and Yokota, "Recovering single
 * precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance" (2022).
 */
#include "include/types.h"

#if !defined(SPLIT) || !defined(LINES) || !defined(WIDE_A) || !defined(WIDE_B)
#error "split.h needs SPLIT LINES WIDE_A WIDE_B"
#endif
#define ZERO_LINE (-127)
#define NEVER (-(1 << 30))
#define TOP as_uint(0x1p15f)
#define SMALL as_uint(0x1p-3f)
#define LARGE 0x1p5f
#define LOSS 4
/* Bytes of a product's packed operand, for each line. Float16 parts have the room of the TF32 parts that may replace
 * them: in one launch a product's float16 parts are multiplied while another product's TF32 parts are written. */
#define ROOM_OF_LINE(depth, line_bytes) (SPLIT ? ((depth) + 15) / 16 * 128L : (line_bytes))

/* --- Reading and packing ---
 *
 * A run is what is contiguous in memory: RUN elements along K, or HELD across K. load_block reads a run in accesses of
 * 16 bytes if it is whole and aligned, else element by element, with zeros outside of the operand. */
#define RUN 4 /* elements of K */
#define HELD 4 /* lines of a work-item: those of its team */
#define TEAMS (LINES / HELD)

/* An operand as float32, with leading dimension `ld`. `lines` and `depth` (K) are those of the real product.
 * `k_fast`: K is contiguous; `wide`: WIDE_A or WIDE_B; `of_b`: it is B; `conj`: it is conjugated. */
typedef struct {
  __global const float *from;
  long ld;
  int lines, depth;
  bool wide, k_fast, of_b, conj;
} Source;

INLINE Source source_a(__global const A_T *a, const long lda, const int lines, const int depth)
{
  return (Source){(__global const float *)a, lda * PLANES, lines, depth, WIDE_A, !TRANS_A, false, CONJ_A};
}
INLINE Source source_b(__global const B_T *b, const long ldb, const int lines, const int depth)
{
  return (Source){(__global const float *)b, ldb * PLANES, lines, depth, WIDE_B, TRANS_B, true, CONJ_B};
}

/* Groups of LINES lines of one operand. The work-groups of A's come first, then those of B's. */
INLINE int line_groups(const int lines) { return (lines + LINES - 1) / LINES; }

/* The first n of four floats, zeros for the rest. */
INLINE float4 some(__global const float *from, const long at, const int n)
{
  float4 v = 0.0f;
  if (n > 0) v.x = from[at];
  if (n > 1) v.y = from[at + 1];
  if (n > 2) v.z = from[at + 2];
  if (n > 3) v.w = from[at + 3];
  return v;
}

/* Puts float `f` of run `run` where it belongs in x; a complex float of B belongs in two places. */
INLINE void place(float x[HELD][RUN], const Source s, const int run, const int f, const float value)
{
#if PLANES == 2
  const float v = s.conj && f % 2 ? -value : value;
  if (!s.of_b) {
    if (s.k_fast) x[run][f] = v;
    else x[f / 2][2 * run + f % 2] = v;
  } else {
    const int line = s.k_fast ? 2 * run : f / 2 * 2;
    const int k = s.k_fast ? f / 2 * 2 : 2 * run;
    x[line][k + f % 2] = f % 2 ? -v : v;
    x[line + 1][k + 1 - f % 2] = v;
  }
#else
  if (s.k_fast) x[run][f] = value;
  else x[f][run] = value;
#endif
}

/* Loads HELD x RUN elements from `line` and `k` on, zeros outside. `whole`: none is outside, and accesses are wide. */
INLINE void load_runs(float x[HELD][RUN], const Source s, const int line, const int k, const bool whole)
{
  const int step = PLANES == 2 && (s.of_b || !s.k_fast) ? 2 : 1; /* lines or k between runs */
  const int runs = (s.k_fast ? HELD : RUN) / step;
  const int wider = PLANES == 2 && !s.of_b && !s.k_fast ? 2 : 1; /* floats of one line at each k */
  const int length = s.k_fast ? RUN : HELD * wider;
  const int first = s.k_fast ? line : k;
  const int limit = s.k_fast ? s.lines : s.depth;
  const long at = (s.k_fast ? k : (long)line * wider) + first / step * s.ld;
  const int end = s.k_fast ? s.depth - k : (s.lines - line) * wider;
  UNROLL for (int run = 0; run < runs; ++run)
    UNROLL for (int f = 0; f < length; f += 4) {
      const long here = at + run * s.ld + f;
      const float4 v = whole ? *(__global const float4 *)(s.from + here)
                             : some(s.from, here, first + run * step < limit ? end - f : 0);
      place(x, s, run, f, v.x);
      place(x, s, run, f + 1, v.y);
      place(x, s, run, f + 2, v.z);
      place(x, s, run, f + 3, v.w);
    }
}

INLINE void load_block(float x[HELD][RUN], const Source s, const int line, const int k)
{
  if (s.wide && line + HELD <= s.lines && k + RUN <= s.depth) load_runs(x, s, line, k, true);
  else load_runs(x, s, line, k, false);
}

/* Rounds x to ten bits of fraction, ties away from zero. */
INLINE float tf32(const float x) { return as_float(as_uint(x) + 0x1000 & 0xffffe000); }

/* Packs LINES lines as they are or, with `parts` 2, as the sum of two TF32, x = hi + lo, unscaled. `work_items`: the size of
 * a work-group. */
INLINE void pack_lines(
    const Source s, __global uchar *to, const long pitch_bytes, const int line, const int work_items, const int parts)
{
  const int end = (s.depth + 15) / 16 * 4; /* in runs: whole 64 bytes */
  const int step = work_items / TEAMS;
  const int mine = line + get_local_id(0) / step * HELD;
  for (int block = get_local_id(0) % step; block < end; block += step) {
    float x[HELD][RUN];
    load_block(x, s, mine, RUN * block);
    UNROLL for (int l = 0; l < HELD; ++l) {
      const float4 v = (float4)(x[l][0], x[l][1], x[l][2], x[l][3]);
      const float4 hi = parts == 2 ? (float4)(tf32(v.x), tf32(v.y), tf32(v.z), tf32(v.w)) : v;
      const float4 lo = v - hi;
      __global float4 *at = (__global float4 *)(to + (mine + l) * pitch_bytes + block / 4 * (parts * 64L) + block % 4 * 16);
      if (mine + l >= s.lines) continue;
      at[0] = hi;
      if (parts == 2) at[4] = (float4)(tf32(lo.x), tf32(lo.y), tf32(lo.z), tf32(lo.w));
    }
  }
}
