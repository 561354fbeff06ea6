/* The layout of the tiles of the `register` family. Every macro is an integer.
 *
 *   BM BN BK    a work-group's tile of out is BM x BN; one step is BK of K
 *   SGM SGN     a sub-group's tile: (SGM / TM) x (SGN / TN) work-items side by side
 *   TM TN       a work-item's elements of out
 *   KS          slices: each step's K is cut into KS slices, whose sums are added at the end
 *   CHUNK       elements of a 16-byte access to local memory (1, 2, 4); divides TM and TN
 *   VEC_A VEC_B elements of one access to global memory: 1 or CHUNK
 *   VECTORS     1: work-groups have two dimensions, so that a CPU's compiler, which makes vectors of the work-items
 *               along dimension 0, sees that these have neighbouring columns. Only where KS is 1
 *   ALONG_A ALONG_B  1: the tile in local memory is along K, as the operand is stored (register_rows.cl only)
 *
 * In local memory k is the slow axis of a tile that is not along K:
 *
 *   tile_a: element (i, k) at k * (BM + PAD_A) + i         tile_b: (k, j) at k * (BN + PAD_B) + j
 *   along:  element (i, k) at i * (BK + CHUNK) + k                 (k, j) at j * (BK + CHUNK) + k
 *
 * A work-item has chunks of CHUNK rows that are SGM / TM chunks apart, so that the work-items of a sub-group read
 * neighbouring chunks (no bank conflicts) or the same chunk (a broadcast):
 *
 *   row of a work-item's element r:  first + (r / CHUNK) * (SGM / TM) * CHUNK + r % CHUNK
 *
 * Where a tile is along K, chunks are along K too, and a work-item's rows are single: CHUNK is 1 in this formula.
 */
#include "include/chunk.h"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(SGM) || !defined(SGN) || \
    !defined(TM) || !defined(TN) || !defined(KS) || !defined(CHUNK) || !defined(VEC_A) || \
    !defined(VEC_B) || !defined(ALONG_A) || !defined(ALONG_B) || !defined(VECTORS)
#error "register_tile.h needs BM BN BK SGM SGN TM TN KS CHUNK VEC_A VEC_B ALONG_A ALONG_B VECTORS"
#endif

/* elements of padding between the rows of a tile that is transposed while it is copied */
#define PAD_A (TRANS_A ? 0 : CHUNK)
#define PAD_B (TRANS_B ? CHUNK : 0)
#define SG_ROWS (SGM / TM)
#define SG_COLS (SGN / TN)
#define SLICE_ITEMS ((BM / TM) * (BN / TN))
#define WORK_ITEMS (SLICE_ITEMS * KS)
#define SLICE_K (BK / KS)
#define LINE_A (ALONG_A ? BK + CHUNK : BM + PAD_A)
#define LINE_B (ALONG_B ? BK + CHUNK : BN + PAD_B)
#define TILE_A (LINE_A * (ALONG_A ? BM : BK)) /* elements */
#define TILE_B (LINE_B * (ALONG_B ? BN : BK))
#define STAGE (TILE_A + TILE_B)
#define CHUNK_A (ALONG_A ? 1 : CHUNK) /* neighbouring rows of a work-item */
#define CHUNK_B (ALONG_B ? 1 : CHUNK) /* neighbouring columns */

/* The place of a work-item in its work-group's tile. */
typedef struct {
  int row, col; /* of its first element */
  int slice;    /* of K */
  int item;     /* in its slice */
} Place;

/* Structures are written through pointers. If an inlined function returns one, LLVM inserts an intrinsic that
 * Oclgrind does not know. */
#if VECTORS
#define WORK_ITEM ((int)(get_local_id(1) * SG_COLS + get_local_id(0)))
#else
#define WORK_ITEM get_local_id(0)
#endif

INLINE void find_place(Place *p, const int lid)
{
  p->slice = lid / SLICE_ITEMS;
  p->item = lid % SLICE_ITEMS;
#if VECTORS
  const int sub_group = get_local_id(1) / SG_ROWS, row = get_local_id(1) % SG_ROWS, col = get_local_id(0);
#else
  const int lane = p->item % (SG_ROWS * SG_COLS), sub_group = p->item / (SG_ROWS * SG_COLS);
  const int row = lane / SG_COLS, col = lane % SG_COLS;
#endif
  p->row = sub_group % (BM / SGM) * SGM + row * CHUNK_A;
  p->col = sub_group / (BM / SGM) * SGN + col * CHUNK_B;
}

#define ROW_OF(place, r) ((place).row + (r) / CHUNK_A * (SG_ROWS * CHUNK_A) + (r) % CHUNK_A)
#define COL_OF(place, c) ((place).col + (c) / CHUNK_B * (SG_COLS * CHUNK_B) + (c) % CHUNK_B)

/* A tile of WIDTH (BM or BN) x BK elements is filled in passes of PASS_X x PASS_K elements, VEC for each work-item.
 * `across` is 1 if k is the contiguous axis in global memory. Then neighbouring work-items read neighbouring k before
 * the next x: RUN accesses, if possible a 32-byte sector, or more if there would not be enough x for all work-items.
 * Passes go along x first, then along k. */
#define SMALLER(x, y) ((x) < (y) ? (x) : (y))
#define LARGER(x, y) ((x) > (y) ? (x) : (y))
#define RUN(width, vec) LARGER(WORK_ITEMS / (width), SMALLER(8, SMALLER(BK / (vec), WORK_ITEMS)))
#define PASS_K(width, vec, across) \
  ((across) ? RUN(width, vec) * (vec) : WORK_ITEMS * (vec) > (width) ? WORK_ITEMS * (vec) / (width) : 1)
#define PASS_X(width, vec, across) (WORK_ITEMS * (vec) / PASS_K(width, vec, across))
#define PASSES(width, vec) ((width) * BK / (vec) / WORK_ITEMS)

/* Where element (x, k) of a tile is in local memory. */
#define TILE_INDEX(x, k, line, along) ((along) ? (x) * (line) + (k) : (k) * (line) + (x))

/* A work-item's position in an operand: one pointer, moved after each pass. Elements beyond the edges are not
 * read. */
typedef struct {
  __global const uchar *at; /* where the next pass reads */
  long step_x, step_k;      /* bytes to the next pass along x; to the first pass of the next k */
  int x_left, k_left;       /* elements from here to the edges */
  int to;                   /* where the first pass is stored in the tile */
} Walk;

INLINE void begin_walk(
    Walk *w, __global const uchar *origin, const long bytes, const long ld, const int x_left, const int k_left,
    const int width, const int line, const int vec, const int across, const int along, const int lid)
{
  const int pass_x = PASS_X(width, vec, across), pass_k = PASS_K(width, vec, across);
  const int x = across ? lid / RUN(width, vec) : lid * vec % pass_x;
  const int k = across ? lid % RUN(width, vec) * vec : lid * vec / pass_x;
  w->at = origin + bytes * (across ? x * ld + k : k * ld + x);
  w->step_x = bytes * pass_x * (across ? ld : 1);
  w->step_k = bytes * pass_k * (across ? 1 : ld) - (width / pass_x - 1) * w->step_x;
  w->x_left = x_left - x;
  w->k_left = width > pass_x || w->x_left > 0 ? k_left - k : 0;
  w->to = TILE_INDEX(x, k, line, along);
}

/* Whether the pass at (x, k) of a tile is inside the matrix. If x never moves, begin_walk has checked it. */
INLINE bool inside(const Walk *w, const int x, const int k, const int width, const int pass_x)
{
  return k < w->k_left && (width == pass_x || x < w->x_left);
}
