/* partial_fragments: the order of a BM x BN tile's partial sums as wgmma.cl stores them and split_k.cl reads
 * them: one fragment of 64 rows (ptx_wgmma.h) after the other.
 *
 * Chunk 128 j + w of a fragment holds accumulators 4 j .. 4 j + 3 of work-item w = 32 s + 4 g + t: columns 8 j + 2 t
 * and 8 j + 2 t + 1 of two rows (fragment_rows.h).
 *
 * Macros: BM BN of the tile; CHUNK 4; those of fragment_rows.h.
 */
#include "nvidia/fragment_rows.h"

#define FRAGMENT_CHUNKS (64 * BN / CHUNK)
#define ROW_IN_TILE(chunk, e) \
  ((chunk) / FRAGMENT_CHUNKS * 64 + fragment_row((chunk) % 128) + (e) / 2 * ROW_STEP)
#define COLUMN_IN_TILE(chunk, e) ((chunk) % FRAGMENT_CHUNKS / 128 * 8 + (chunk) % 4 * 2 + (e) % 2)
