/* Products with a thin side: at most Q rows (THIN_ROWS 1) or Q columns (THIN_ROWS 0) of out.
 *
 *   out(q, x) = sum_k Y(q, k) X(k, x)         X is the big operand, Y the thin one
 *
 *   THIN_ROWS 1: X(k, x) = B(k, x), Y(q, k) = A(q, k)     0: X(k, x) = A(x, k), Y(q, k) = B(k, q)
 *
 * Such a product does 2 Q operations for each element of X it reads: memory bandwidth is all.
 * Macros: THIN_ROWS, Q, SPLIT (register.cl), SHORT_X 1: X has elements of 16 bits, of which an access takes
 * 4 or 8; those of tile_order.h, whose tile is the work-group's.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/gemm.h"
#include "include/chunk.h"

#if !defined(THIN_ROWS) || !defined(Q) || !defined(VEC) || !defined(SPLIT) || !defined(SHORT_X)
#error "thin.h needs THIN_ROWS Q VEC SPLIT SHORT_X"
#endif

#if THIN_ROWS
#define X_T B_T
#define Y_T A_T
#define X_BASE b
#define Y_BASE a
#define LOAD_X LOAD_B
#define LOAD_Y LOAD_A
#define X_EXTENT N
#define Y_EXTENT M
#define X_STEP_K (TRANS_B ? 1 : ldb)
#define X_STEP_X (TRANS_B ? ldb : 1)
#define Y_STEP_K (TRANS_A ? lda : 1)
#define Y_STEP_Q (TRANS_A ? 1 : lda)
#define TILE_X BN
#define STORE_THIN(q, x, v) STORE_RESULT(q, x, v)
#define TILE_AT(q, x) ((q) * BN + (x))
#else
#define X_T A_T
#define Y_T B_T
#define X_BASE a
#define Y_BASE b
#define LOAD_X LOAD_A
#define LOAD_Y LOAD_B
#define X_EXTENT M
#define Y_EXTENT N
#define X_STEP_K (TRANS_A ? lda : 1)
#define X_STEP_X (TRANS_A ? 1 : lda)
#define Y_STEP_K (TRANS_B ? 1 : ldb)
#define Y_STEP_Q (TRANS_B ? ldb : 1)
#define TILE_X BM
#define STORE_THIN(q, x, v) STORE_RESULT(x, q, v)
#define TILE_AT(q, x) ((x) * BN + (q))
#endif

/* access_t: VEC elements of X as FETCH_X reads them, and SPREAD_X(to, v), those as accumulators. 16-bit elements stay
 * as they are until they are multiplied, so that many accesses in flight take few registers. */
#if VEC > 1 && SHORT_X
#if VEC == 8
typedef uint4 access_t;
#define SPREAD_WORDS(to, v) ((to)[0] = (v).x, (to)[1] = (v).y, (to)[2] = (v).z, (to)[3] = (v).w)
#else
typedef uint2 access_t;
#define SPREAD_WORDS(to, v) ((to)[0] = (v).x, (to)[1] = (v).y)
#endif
#define FETCH_X(p) (*(__global const access_t *)(p))
#define SPREAD_X(to, v)                                              \
  do {                                                               \
    uint words_[VEC / 2];                                            \
    SPREAD_WORDS(words_, v);                                         \
    UNROLL for (int e_ = 0; e_ < VEC; ++e_) {                        \
      const ushort bits_ = (ushort)(words_[e_ / 2] >> e_ % 2 * 16);  \
      (to)[e_] = LOAD_X((const X_T *)&bits_, 0);                     \
    }                                                                \
  } while (0)
#elif VEC > 1
typedef chunk_t access_t;
#define FETCH_X(p) (*(__global const access_t *)(p))
#define SPREAD_X(to, v) SPREAD(to, v)
#else
typedef ACC_T access_t;
#define FETCH_X(p) LOAD_X(p, 0)
#define SPREAD_X(to, v) ((to)[0] = (v))
#endif

/* The sum of a tile's element (q, x), complete or a partial sum. */
#if SPLIT
#define GROUP_NUMBER (BATCH_ENTRY * get_num_groups(0) + get_group_id(0))
#define SHARE_NUMBER (GROUP_NUMBER * get_num_groups(1) + get_group_id(1))
#define STORE_SUM(q, x, v) partial[SHARE_NUMBER * (BM * BN) + TILE_AT(q, (x) - x0)] = (v)
#else
#define STORE_SUM(q, x, v) STORE_THIN(q, x, v)
#endif
