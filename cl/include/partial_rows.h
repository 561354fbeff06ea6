/* Partial sums of a BM x BN tile, stored row by row (add_partial_sums.h). */
#define CHUNK 1
#define EACH 1 /* there are enough work-items to hide latency */
#define ROW_IN_TILE(chunk, e) ((chunk) / BN)
#define COLUMN_IN_TILE(chunk, e) ((chunk) % BN)
#define OUT_AT(i, j, ldo) ((long)(i) * (ldo) + (j))
