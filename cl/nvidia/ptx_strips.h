/* Blocks of float64 operands, brought by the copy engine (sm_90) as strips: 2,048 bytes of local memory
 * for 16 rows of A or columns of B by 16 of K, lines of 128 bytes, swizzled as ptx_map.h draws it.
 *
 *               one line                             one copy is a box of
 *   along K     16 of K of one row                   16 x rows           of a matrix
 *   across K    16 rows at one k                     16 x 16 x rows / 16 of layers that lie 128 bytes apart
 *
 * Rows come in whole strips then; where they do not (and the last layer would reach into the next row), a
 * copy brings one strip.
 */
#include "include/attributes.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_map.h"

#define STRIP 2048

/* Whether one copy brings all strips. */
INLINE bool in_layers(const int across, const int rows) { return across && rows % 16 == 0; }

/* What the map of an operand describes: `rows` rows of A (columns of B) and `depth` of K, lines `pitch` bytes apart;
 * a copy takes `extent` rows. */
INLINE map_t strips_of(
    __global const uchar *from, const int across, const int rows, const int depth, const long pitch, const int extent)
{
  const bool layers = in_layers(across, rows);
  return (map_t){
      from, layers ? 16 : across ? rows : depth, across ? depth : rows, layers ? rows / 16 : 1,
      pitch, 128, 16, across ? 16 : extent, layers ? extent / 16 : 1};
}

/* Starts copies of k .. k + 15 of `extent` rows from `row` on. */
INLINE void copy_strips(
    const uint to, __global const ulong *map, const int across, const int rows, const int extent,
    const int row, const int k, const uint bar)
{
  if (!across) copy_box(to, map, k, row, 0, bar);
  else if (in_layers(across, rows)) copy_box(to, map, 0, k, row / 16, bar);
  else
    for (int i = 0; i < extent / 16; ++i) copy_box(to + i * STRIP, map, row + 16 * i, k, 0, bar);
}
