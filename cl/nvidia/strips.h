/* strips: blocks of float64 operands, brought by the copy engine (sm_90) as strips.
 *
 * A strip is 2,048 bytes of local memory: 16 rows of A or columns of B by 16 of K, as 16 lines of 128 bytes, swizzled
 * as ptx_map.h draws it.
 *
 *               one line                            one copy brings a box of
 *   along K     16 of K of one row                  16 of K x rows
 *   across K    16 rows at one k                    16 rows x 16 of K x (rows / 16) layers, 128 bytes apart
 *
 * If the number of rows is no multiple of 16, the last layer would reach into the next k. Then a copy brings one strip.
 *
 * Macros: SGM x SGN, a sub-group's tile, multiples of 16; TRANS_A TRANS_B (gemm.h).
 * Technique: the three-dimensional tensor maps of NVIDIA's PTX manual.
 */
#include "include/gemm.h"
#include "nvidia/ptx_map.h"
#include "nvidia/ptx_mma.h"

#if !defined(SGM) || !defined(SGN)
#error "strips.h needs SGM SGN"
#endif

#define STRIP 2048

/* Whether the map of an operand across K has layers, so that one copy brings all strips. */
INLINE bool in_layers(const int across, const int rows) { return across && rows % 16 == 0; }

/* The map of an operand of `rows` rows of A (columns of B) and `depth` of K. `pitch`: its leading dimension in bytes.
 * `extent`: rows of a copy. */
INLINE map_t strips_of(
    __global const uchar *from, const int across, const int rows, const int depth, const long pitch, const int extent)
{
  const bool layers = in_layers(across, rows);
  return (map_t){
      from, layers ? 16 : across ? rows : depth, across ? depth : rows, layers ? rows / 16 : 1,
      pitch, 128, 16, across ? 16 : extent, layers ? extent / 16 : 1};
}

/* Starts the copies of `extent` rows from `row` on, at k .. k + 15. */
INLINE void copy_strips(
    const uint to, __global const ulong *map, const int across, const int rows, const int extent,
    const int row, const int k, const uint bar)
{
  if (!across) copy_box(to, map, k, row, 0, bar);
  else if (in_layers(across, rows)) copy_box(to, map, 0, k, row / 16, bar);
  else
    for (int i = 0; i < extent / 16; ++i) copy_box(to + i * STRIP, map, row + 16 * i, k, 0, bar);
}

/* Float64 on the matrix units of sm_90: a sub-group reads fragments from strips.
 *
 * Fragments are those of ptx_mma.h, of 8 of K: a[h + 2 q], b[q], d[2 h + e] of work-item 4 g + t.
 * A strip of B is two fragments, h = 0 and 1. Which row or column of a strip belongs to g and h is free, as long as D
 * follows. With the maps below, work-items that read at the same time (16 of 8 bytes, 8 of 16) meet different memory
 * banks, and results lie in pairs that fill sectors of 32 bytes. g = 4 g2 + 2 g1 + g0:
 *
 *   stored along K    row or column   4 g0 + 2 g1 + 8 g2 + h
 *   A, across K       row             8 g0 + 4 g1 + 2 g2 + h      h = 0, 1 in one read
 *   B, across K       column            g0 + 8 g1 + 2 g2 + 4 h */

#define ACROSS_A TRANS_A /* stored across K */
#define ACROSS_B (!TRANS_B)
#define ACCS (SGM * SGN / 32) /* accumulators of a work-item */

/* The sum of bits 0, 1, 2 of g times w0, w1, w2. */
INLINE int weighed(const int g, const int w0, const int w1, const int w2)
{
  return (g & 1) * w0 + (g >> 1 & 1) * w1 + (g >> 2) * w2;
}

/* ROW_OF: the row of D for h = 0. PAIR_OF: the first column of a pair of neighbours. With B stored across K the pair is
 * d[0], d[1] of fragment e; along K it is d[e] of fragments 0 and 1. */
#define ROW_OF(g) (ACROSS_A ? weighed(g, 8, 4, 2) : weighed(g, 4, 2, 8))
#define PAIR_OF(t, e) (4 * (e) + ((t) & 1) * (ACROSS_B ? 8 : 2) + (t) / 2 * (ACROSS_B ? 2 : 8))
/* The fragment and the element of D that hold column c of that pair in row h. */
#define PAIR_FRAGMENT(e, c) (ACROSS_B ? (e) : (c))
#define PAIR_ELEMENT(h, e, c) (2 * (h) + (ACROSS_B ? (c) : (e)))

/* The byte of a strip that a work-item reads for h = q = step = 0: of an operand along K, of A, of B. */
INLINE int place_along(const int g, const int t)
{
  const int line = weighed(g, 4, 2, 8);
  return line * 128 + (t / 2 ^ line % 8) * 16 + t % 2 * 8;
}
INLINE int place_a(const int g, const int t)
{
  return ACROSS_A ? t * 128 + (weighed(g, 4, 2, 1) ^ t) * 16 : place_along(g, t);
}
INLINE int place_b(const int g, const int t)
{
  const int column = weighed(g, 1, 8, 2);
  return ACROSS_B ? t * 128 + (column / 2 ^ t) * 16 + column % 2 * 8 : place_along(g, t);
}

/* The same: loads f[h + 2 q] from a strip, for k = 8 step .. 8 step + 7. step: 0, 1. */
INLINE void load_along(double *f, __local const uchar *strip, const int place, const int step)
{
  UNROLL for (int e = 0; e < 4; ++e)
    f[e] = *(__local const double *)(strip + e % 2 * 128 + (place ^ (e % 2 * 16 + e / 2 * 32 + step * 64)));
}
INLINE void load_strip_a(double *f, __local const uchar *strip, const int place, const int step)
{
  if (!ACROSS_A) load_along(f, strip, place, step);
  else
    UNROLL for (int q = 0; q < 2; ++q) {
      const double2 rows = *(__local const double2 *)(strip + step * 1024 + q * 512 + (place ^ q * 64));
      f[2 * q] = rows.s0;
      f[2 * q + 1] = rows.s1;
    }
}
INLINE void load_strip_b(double *f, __local const uchar *strip, const int place, const int step)
{
  if (!ACROSS_B) load_along(f, strip, place, step);
  else
    UNROLL for (int e = 0; e < 4; ++e)
      f[e] = *(__local const double *)(strip + step * 1024 + e / 2 * 512 + (place ^ (e % 2 * 32 + e / 2 * 64)));
}
