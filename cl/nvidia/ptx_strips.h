/* ptx_strips: blocks of float64 operands, brought by the copy engine (sm_90) as strips.
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
 * Technique: the three-dimensional tensor maps of NVIDIA's PTX manual.
 */
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_map.h"

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
