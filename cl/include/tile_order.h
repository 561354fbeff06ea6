/* The order of a product's tiles. The kernels that compute tiles and those that add partial sums share it.
 *
 * Macros: GROUP: so many rows of tiles are computed together, column by column, so that work-groups
 * that run at the same time share operands in the cache.
 */
#include "include/attributes.h"

#ifndef GROUP
#error "tile_order.h needs GROUP"
#endif

/* Tile number -> its row and column, counted in tiles. A division takes 35 instructions on GPUs, before anything is
 * loaded: with few rows there is one, and one by GROUP is a shift. */
INLINE int2 tile_at(const uint tile, const uint rows, const uint cols)
{
  const uint group = rows > GROUP ? tile / (GROUP * cols) : 0;
  const uint in_group = tile - group * GROUP * cols;
  const uint height = min(rows - group * GROUP, (uint)GROUP);
  const uint column = height == GROUP ? in_group / GROUP : in_group / height;
  return (int2)(group * GROUP + in_group - column * height, column);
}
