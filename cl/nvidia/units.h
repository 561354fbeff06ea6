/* How the tiles of a launch are dealt out to work-groups and, in them, to quartets of sub-groups.
 *
 * A unit is what a work-group computes at a time: a tile of one of `stack` products, or a share of the K of
 * one. The first `whole` tiles are not cut, the others are, into `shares`:
 *
 *     units    0 .. whole - 1  tiles 0 .. whole - 1
 *              then            share 0 of each tile from `whole` on, share 1 of each, ..
 *
 * With SWAPPED the product is out^T = B^T A^T, M x N of it, and what is called a here is the caller's b.
 *
 * Macros: BM BN of a tile (tile_order.h); SPLIT_K 0: no tile is cut; ALTERNATE 0: a quartet for each 64 rows
 * of a tile, 1: two quartets, each has all of every other unit; ELEMENT_BYTES of what is multiplied;
 * SWAPPED 0, 1; BATCHED (gemm.h).
 */
#include "include/types.h"
#include "include/gemm.h"
#include "include/tile_order.h"

#if !defined(SPLIT_K) || !defined(ALTERNATE) || !defined(ELEMENT_BYTES) || !defined(SWAPPED)
#error "units.h needs SPLIT_K ALTERNATE ELEMENT_BYTES SWAPPED"
#endif
#define OUT_AT(i, j) (SWAPPED ? (long)(j) * ldo + (i) : (long)(i) * ldo + (j))
#define BK (128 / ELEMENT_BYTES)
#define QUARTETS (ALTERNATE ? 2 : BM / 64)
#define OWNERS (ALTERNATE ? 1 : QUARTETS) /* quartets of one tile */
#define FRAGMENTS (ALTERNATE ? BM / 64 : 1) /* of 64 rows, a quartet */
#define WGMMA_ACC (WGMMA_N / 2) /* as ptx_wgmma.h: accumulators that a work-item has of a fragment */
#define ACCS (FRAGMENTS * WGMMA_ACC)

/* Before GEMM_BEGIN, and then, for each tile, to its product of a stack that work-groups go through. */
#if BATCHED
#define KEEP_STACK                            \
  __global OUT_T *const all_out_ = out + out_offset; \
  __global const C_T *const all_c_ = c + c_offset
#define MOVE_IN_STACK(layer)                                             \
  (out = all_out_ + batch_offsets[4 * (BATCH_ENTRY + (layer)) + 3],      \
   c = all_c_ + batch_offsets[4 * (BATCH_ENTRY + (layer)) + 2])
#else
#define KEEP_STACK
#define MOVE_IN_STACK(layer)
#endif

/* What a launch computes: `tiles` of tiles_m x tiles_n a product, `blocks` of K each. */
typedef struct { int tiles_m, tiles_n, tiles, blocks, whole, shares; } work_t;

/* Blocks first .. end - 1 of a tile of product `layer` of the stack; share -1: all of them. */
typedef struct { int tile, layer, share, first, end; int2 origin; } unit_t;

static inline work_t work_of(
    const int M, const int N, const int K, const int stack, const int whole, const int shares)
{
  const int tiles_m = (M + BM - 1) / BM;
  const int tiles_n = (N + BN - 1) / BN;
  return (work_t){tiles_m, tiles_n, tiles_m * tiles_n * stack, (K + BK - 1) / BK, whole, shares};
}

static inline int units_of(const work_t work)
{
  return SPLIT_K ? work.whole + (work.tiles - work.whole) * work.shares : work.tiles;
}

static inline unit_t unit_at(const int number, const work_t work)
{
  unit_t unit = {number, 0, -1, 0, work.blocks, (int2)(0, 0)};
#if SPLIT_K
  const int after = number - work.whole;
  const int cut = work.tiles - work.whole;
  if (after >= 0) {
    unit.share = after / cut;
    unit.tile = work.whole + after % cut;
    unit.first = (int)((long)work.blocks * unit.share / work.shares);
    unit.end = (int)((long)work.blocks * (unit.share + 1) / work.shares);
  }
#endif
  const int per_layer = work.tiles_m * work.tiles_n;
  unit.layer = unit.tile / per_layer;
  unit.origin = tile_at(unit.tile - unit.layer * per_layer, work.tiles_m, work.tiles_n) * (int2)(BM, BN);
  return unit;
}
