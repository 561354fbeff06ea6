/* Partial sums of a BM x BN tile that lie row by row (add_partial_sums.h). */
#define CHUNK 1
#define EACH 1 /* work-items are many: they hide each other's latency */
#define ROW_IN_TILE(chunk, e) ((chunk) / BN)
#define COLUMN_IN_TILE(chunk, e) ((chunk) % BN)
#define OUT_AT(i, j, ldo) ((long)(i) * (ldo) + (j))
