/* The order of a product's BM x BN tiles. The kernels that compute tiles and those that add partial sums share it.
 *
 * Macros: BM BN, and GROUP: so many rows of tiles are computed together, column by column, so that work-groups
 * that run at the same time share operands in the cache.
 */
#include "include/attributes.h"

#if !defined(BM) || !defined(BN) || !defined(GROUP)
#error "tile_order.h needs BM BN GROUP"
#endif

/* Tile number -> its row and column, counted in tiles. */
INLINE int2 tile_at(const int tile, const int rows, const int cols)
{
  const int group = tile / (GROUP * cols);
  const int in_group = tile - group * GROUP * cols;
  const int height = min(rows - group * GROUP, GROUP);
  return (int2)(group * GROUP + in_group % height, in_group / height);
}
