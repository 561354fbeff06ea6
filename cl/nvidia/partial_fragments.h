/* Partial sums of a BM x BN tile as wgmma.cl leaves them and add_partial_sums.h reads them: fragment after fragment
 * of 64 rows, as ptx_wgmma.h draws it.
 *
 * Chunk 128 j + w of a fragment has accumulators 4 j .. 4 j + 3 of work-item w = 32 s + 4 g + t: elements of two
 * rows (fragment_rows.h), columns 8 j + 2 t and 8 j + 2 t + 1.
 *
 * Macros: BM BN of the tile.
 */
#include "nvidia/fragment_rows.h"

#define CHUNK 4
#define EACH 8 /* loads in flight */
#define FRAGMENT_CHUNKS (64 * BN / CHUNK)
#define ROW_IN_TILE(chunk, e) \
  ((chunk) / FRAGMENT_CHUNKS * 64 + fragment_row((chunk) % 128) + (e) / 2 * ROW_STEP)
#define COLUMN_IN_TILE(chunk, e) ((chunk) % FRAGMENT_CHUNKS / 128 * 8 + (chunk) % 4 * 2 + (e) % 2)
