/* mma_split_k: adds the partial sums of mma_partial.h, which lie row by row. There are few tiles, so a work-item has
 * the loads of several ranges in flight. */
#define CHUNK 1
#define EACH 8
#define ROW_IN_TILE(chunk, e) ((chunk) / BN)
#define COLUMN_IN_TILE(chunk, e) ((chunk) % BN)
#define OUT_AT(i, j, ldo) ((long)(i) * (ldo) + (j))
#include "include/add_partial_sums.h"
