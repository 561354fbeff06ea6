/* fragment.h for sums of out^T: columns of a fragment are rows of out, and its rows lie side by side there.
 *
 *     work-item 4 g + t, block b of eight columns:   acc[4 b + 2 h + c] is (i + ROW_STEP h, 8 b + 2 t + c)
 *
 * Where rows of h = 0 and 1 are neighbours (fragment_rows.h), they are stored as pairs: of elements of 4 bytes, four
 * work-items fill a sector of 32 bytes. Otherwise the eight g do.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "nvidia/fragment.h"
#include "nvidia/fragment_rows.h"

#define STORE_SINGLE_OF_COLUMN(i, j, acc)                                  \
  do {                                                                     \
    if ((i) < M && (j) < N) STORE_OUT(out, OUT_AT(i, j), FINISHED(i, j, acc)); \
  } while (0)

#if LEFT_REGISTERS && OUT_VECTOR && OUT_WIDTH
#if OUT_WIDTH == 2
#define STORE_TWO(to, low, high) (*(__global uint *)(to) = CAT(packed_, OUT_TYPE)((float)(low), (float)(high)))
#else
typedef struct { OUT_T low, high; } ALIGNED(2 * OUT_WIDTH) column_pair;
#define STORE_TWO(to, first, second)         \
  do {                                       \
    column_pair pair_;                       \
    STORE_OUT(&pair_.low, 0, first);         \
    STORE_OUT(&pair_.high, 0, second);       \
    *(__global column_pair *)(to) = pair_;   \
  } while (0)
#endif
#define STORE_COLUMN(i, j, v)                                                                        \
  do {                                                                                               \
    if ((i) + 1 < M && (j) < N) {                                                                    \
      STORE_TWO(out + OUT_AT(i, j), FINISHED(i, j, (v)[0]), FINISHED((i) + 1, j, (v)[2]));           \
    } else {                                                                                         \
      STORE_SINGLE_OF_COLUMN(i, j, (v)[0]);                      \
    }                                                            \
  } while (0)
#else
#define STORE_COLUMN(i, j, v)                             \
  do {                                                    \
    STORE_SINGLE_OF_COLUMN(i, j, (v)[0]);                 \
    STORE_SINGLE_OF_COLUMN((i) + ROW_STEP, j, (v)[2]);    \
  } while (0)
#endif

/* All fragments of rows i and i + ROW_STEP: `blocks` blocks from column j on. */
#define STORE_FRAGMENT_COLUMNS(i, j, acc, blocks)                                              \
  do {                                                                                         \
    UNROLL for (int b_ = 0; b_ < (blocks); ++b_)                                    \
      UNROLL for (int c_ = 0; c_ < 2; ++c_)                                         \
        STORE_COLUMN(i, (j) + 8 * b_ + (int)get_local_id(0) % 4 * 2 + c_, (acc) + 4 * b_ + c_); \
  } while (0)
