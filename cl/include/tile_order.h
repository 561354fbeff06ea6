/* The order of a product's BM x BN tiles: shared by the kernels that compute them and the one that reduces.
 *
 * Macros: BM BN, and GROUP, rows of tiles that are walked together, column by column, so that
 * work-groups that run at one time share operands in the cache.
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
