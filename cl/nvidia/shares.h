/* Where shares of a tile's K wait to be added up: `partial`, between wgmma.cl and shares.cl.
 *
 * Each quartet of each share has a slot, in which its sums lie as it held them: accumulators 4 i .. 4 i + 3
 * of work-item w at 4 (128 i + w). Slots lie share after share, in a share cut tile after cut tile, in a tile
 * quartet after quartet; products of a stack that have work-groups of their own follow each other.
 *
 * ACCS accumulators a work-item, those of FRAGMENTS fragments as ptx_wgmma.h draws them.
 */
#include "nvidia/units.h"

#define SLOT_SIZE (128L * ACCS)

/* The slot of a share of cut tile number `tile`, 0 for the first that is cut, of product z. */
static inline long slot_at(const long z, const int share, const int tile, const int owner, const work_t work)
{
  const int cut = work.tiles - work.whole;
  return (((z * work.shares + share) * cut + tile) * OWNERS + owner) * SLOT_SIZE;
}
