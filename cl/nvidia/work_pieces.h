/* work_pieces: how the tiles of a launch are divided among its work-groups.
 *
 * A piece is what a work-group computes at a time: a tile of one of `stack` products or, with split-K, one range of a
 * tile's K. The first `whole` tiles are not cut. Each of the others is cut into `split_k` ranges:
 *
 *     piece   0 .. whole - 1   tiles 0 .. whole - 1
 *             whole and up     range 0 of each tile from `whole` on, then range 1 of each, ..
 *
 * Work-group g computes pieces g, g + groups, ...
 *
 * Where rows of A (LISTED 1) or K (LISTED 2) are divided among products, pieces are the tiles of the table: tile (p, i, j, w)
 * is of product p, which begins at row or step w. Of rows, product p multiplies layer p of B. Of K its result is elsewhere.
 *
 * Macros: BM BN GROUP (tile_order.h); SPLIT_K 0: no tile is cut, 1: as above.
 */
#include "include/gemm.h"
#include "include/tile_order.h"
#include "nvidia/ptx_map.h"

#ifndef SPLIT_K
#error "work_pieces.h needs SPLIT_K"
#endif

/* What a launch computes: `tiles` in all, tiles_m x tiles_n of each product, each of `steps` steps of K. */
typedef struct {
  int tiles_m, tiles_n, tiles, steps, whole, split_k;
#if LISTED
  int step;
  __global const int4 *listed;
  __global const long *products;
#endif
} work_t;

/* Steps first .. end - 1 of a tile of product `layer` of the stack. `range` is -1 if the tile is not cut. `origin`:
 * the tile's first row and column. Of a table: `rows`, where the rows of its product end; where K is divided, `k`, where
 * its steps begin, `depth`, how many elements of K it has, and `out`, where its result begins. */
typedef struct {
  int tile, layer, range, first, end;
  int2 origin;
#if LISTED
  int rows, k, depth;
  long out;
#endif
} piece_t;

/* `step`: elements of K in a step. */
INLINE work_t work_of(
    const int M, const int N, const int K, const int step, const int stack, const int whole, const int split_k)
{
  const int tiles_m = (M + CLUSTER * BM - 1) / (CLUSTER * BM), tiles_n = (N + BN - 1) / BN;
  return (work_t){tiles_m, tiles_n, tiles_m * tiles_n * stack, (K + step - 1) / step, whole, split_k};
}

INLINE int pieces_of(const work_t work)
{
  return SPLIT_K ? work.whole + (work.tiles - work.whole) * work.split_k : work.tiles;
}

#if LISTED
INLINE work_t listed_work(
    work_t work, const int step, __global const int4 *listed, __global const long *products)
{
  work.step = step;
  work.tiles = listed[0].x;
  work.listed = listed;
  work.products = products;
  return work;
}

INLINE piece_t piece_at(const int number, const work_t work)
{
  const int4 tile = work.listed[1 + number];
  __global const long *own = work.products + PRODUCT * (long)tile.x;
  const int depth = own[7];
#if LISTED == 2
  const int2 origin = (int2)(tile.y, tile.z);
  return (piece_t){number, 0, -1, 0, (depth + work.step - 1) / work.step, origin, own[5], tile.w, depth, own[3]};
#else
  const int2 origin = (int2)(tile.w + tile.y, tile.z);
  return (piece_t){number, tile.x, -1, 0, depth ? work.steps : 0, origin, tile.w + (int)own[5], 0, depth, 0};
#endif
}
#else
INLINE piece_t piece_at(const int number, const work_t work)
{
  piece_t piece = {number, 0, -1, 0, work.steps, (int2)(0, 0)};
#if SPLIT_K
  const int after = number - work.whole;
  const int cut = work.tiles - work.whole;
  if (after >= 0) {
    piece.range = after / cut;
    piece.tile = work.whole + after % cut;
    piece.first = (int)((long)work.steps * piece.range / work.split_k);
    piece.end = (int)((long)work.steps * (piece.range + 1) / work.split_k);
  }
#endif
  const int per_layer = work.tiles_m * work.tiles_n;
  piece.layer = per_layer == work.tiles ? 0 : piece.tile / per_layer; /* the first copy waits for this division */
  piece.origin = tile_at(piece.tile - piece.layer * per_layer, work.tiles_m, work.tiles_n) * (int2)(CLUSTER * BM, BN);
  piece.origin.s0 += member() * BM;
  return piece;
}
#endif
