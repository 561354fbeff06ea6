/* block: a TM x TN block of out in the registers of a work-item, summed from tiles in local memory.
 *
 *   row i0 + li TM + m, column j0 + lj + n ITEMS_X: neighbouring work-items hold neighbouring columns
 *
 * Macros: those of tiles.h.
 */
#include "textbook/tiles.h"

INLINE void clear_block(ACC_T acc[TM][TN])
{
  for (int m = 0; m < TM; ++m)
    for (int n = 0; n < TN; ++n) acc[m][n] = ACC_ZERO;
}

/* For each k: TM elements of A times TN of B, read once into registers. */
INLINE void multiply_tiles(
    __local const row_of_a *tile_a, __local const row_of_b *tile_b, ACC_T acc[TM][TN], const int li, const int lj)
{
  for (int k = 0; k < BK; ++k) {
    ACC_T x[TM], y[TN];
    for (int m = 0; m < TM; ++m) x[m] = tile_a[li + m][k];
    for (int n = 0; n < TN; ++n) y[n] = tile_b[k][lj + n * ITEMS_X];
    for (int m = 0; m < TM; ++m)
      for (int n = 0; n < TN; ++n) acc[m][n] = MAC(acc[m][n], x[m], y[n]);
  }
}
