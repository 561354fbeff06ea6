/* register for small products: out = A B, with the sums exchanged through local memory and stored row by row.
 *
 *    work-items of slice 0, 1 .. KS - 1          local memory              all work-items
 *       acc(TM x TN) of their share of K   -->   KS x BM x BN sums   -->   add KS sums, store neighbours of a row
 *
 * A small product waits more than it computes: for memory, for one multiply-add after another, and for the stores at
 * the end. So K is cut into many slices, and all work-items, not only those of slice 0, store elements of out. There is
 * one launch and no split-K. The slices are added in order, so the bits are the same every time.
 *
 * An operand that is stored along K and aligned stays along K in local memory (ALONG_A, ALONG_B): it is copied and read
 * 16 bytes at a time, not transposed element by element.
 *
 * Macros: those of register_loop.h. KS divides TM TN, BN divides WORK_ITEMS, CHUNK divides BK / KS.
 * Dimension 0 of the NDRange has WORK_ITEMS for each column of tiles, dimension 1 a work-group for each row of tiles.
 * To find a tile by its number takes two divisions, which delay the first copy.
 */
#include "include/gemm.h"
#include "include/chunk.h"
#include "gpu/register_loop.h"

#define SUM_LINE (BN + CHUNK) /* padded: work-items that write different rows use different banks */
#define SLICE_SUMS (BM * SUM_LINE)
#define LOCAL_ELEMENTS LARGER(STAGES * STAGE, KS * SLICE_SUMS)

/* f[e * count + n] = element (x, k + e) of a tile, for all e < CHUNK, where x is the work-item's row or column n. `at`
 * points to its first one at k = 0; neighbouring work-items are `side` of them. */
INLINE void read_chunks(
    ACC_T *f, __local const ACC_T *at, const int k, const int count, const int side, const int line, const int along)
{
  ACC_T v[CHUNK];
  UNROLL for (int n = 0; n < (along ? count : CHUNK); ++n) {
    UNROLL for (int m = 0; m < (along ? 1 : count / CHUNK); ++m) {
      const int place = along ? n * side * line + k : (k + n) * line + m * side * CHUNK;
      const chunk_t read = *(__local const chunk_t *)(at + place);
      SPREAD(v, read);
      UNROLL for (int e = 0; e < CHUNK; ++e) f[along ? e * count + n : n * count + m * CHUNK + e] = v[e];
    }
  }
}

/* acc += the products of this work-group's tiles over `depth` of K, CHUNK of K at a time. Unlike accumulate, it reads
 * nothing past the last step. */
INLINE void accumulate_chunks(
    ACC_T (*acc)[TN], Stream *stream, __local ACC_T *tiles, const Place p, const int depth)
{
  ACC_T fa[CHUNK][TM], fb[CHUNK][TN];
  for (int stage = 0; stage < LEAD; ++stage) {
    fetch_a(stream, tiles + stage * STAGE);
    fetch_b(stream, tiles + stage * STAGE);
  }
  const int at_a = TILE_INDEX(p.row, 0, LINE_A, ALONG_A), at_b = TILE_INDEX(p.col, 0, LINE_B, ALONG_B) + TILE_A;
  const int k0 = p.slice * SLICE_K;
  int now = 0, filled = LEAD * STAGE;
  for (int k = 0; k < depth; k += BK) {
    land_tile(stream, tiles + now);
    barrier(CLK_LOCAL_MEM_FENCE);
    fetch_a(stream, tiles + filled);
    fetch_b(stream, tiles + filled);
    UNROLL for (int kk = 0; kk < SLICE_K; kk += CHUNK) {
      read_chunks(fa[0], tiles + now + at_a, k0 + kk, TM, SG_ROWS, LINE_A, ALONG_A);
      read_chunks(fb[0], tiles + now + at_b, k0 + kk, TN, SG_COLS, LINE_B, ALONG_B);
      UNROLL for (int e = 0; e < CHUNK; ++e) multiply(acc, fa[e], fb[e]);
    }
    now = next_stage(now);
    filled = next_stage(filled);
  }
}

/* Writes this work-item's sums where their slice has them in local memory. */
INLINE void write_sums(__local ACC_T *sums, ACC_T (*acc)[TN], const Place p)
{
  sums += p.slice * SLICE_SUMS;
  UNROLL for (int r = 0; r < TM; ++r) {
    UNROLL for (int c = 0; c < TN; c += CHUNK_B) {
      __local ACC_T *to = sums + ROW_OF(p, r) * SUM_LINE + COL_OF(p, c);
      if (CHUNK_B > 1)
        *(__local chunk_t *)to = GATHERED(acc[r] + c);
      else
        *to = acc[r][c];
    }
  }
}

/* A work-item finishes EACH elements of one column, ROWS rows apart. */
#define EACH (TM * TN / KS)
#define ROWS (WORK_ITEMS / BN)

/* to[n] = the sum over all slices at element `at` + n ROWS rows. */
INLINE void add_slices(ACC_T *to, __local const ACC_T *sums, const int at)
{
  UNROLL for (int n = 0; n < EACH; ++n) {
    to[n] = sums[at + n * ROWS * SUM_LINE];
    UNROLL for (int slice = 1; slice < KS; ++slice)
      to[n] = to[n] + sums[at + n * ROWS * SUM_LINE + slice * SLICE_SUMS];
  }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_register_rows(GEMM_ARGS)
{
  __local ACC_T tiles[LOCAL_ELEMENTS] ALIGNED(16);
  GEMM_BEGIN;
  const int lid = get_local_id(0) % WORK_ITEMS; /* its range is known, so divisions are shifts */
  Place p;
  find_place(&p, lid);
  const int i0 = get_group_id(1) * BM, j0 = get_group_id(0) * BN;

  Stream stream;
  begin_walk(&stream.a, (__global const uchar *)(a + A_INDEX(i0, 0, lda)), sizeof(A_T), lda, M - i0, K, BM,
             LINE_A, VEC_A, !TRANS_A, ALONG_A, lid);
  begin_walk(&stream.b, (__global const uchar *)(b + B_INDEX(0, j0, ldb)), sizeof(B_T), ldb, N - j0, K, BN,
             LINE_B, VEC_B, TRANS_B, ALONG_B, lid);
  ACC_T acc[TM][TN];
  UNROLL for (int r = 0; r < TM; ++r) UNROLL for (int t = 0; t < TN; ++t) acc[r][t] = ACC_ZERO;
  accumulate_chunks(acc, &stream, tiles, p, K);

  DRAIN;
  barrier(CLK_LOCAL_MEM_FENCE); /* nobody reads the tiles any more */
  write_sums(tiles, acc, p);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int row = lid / BN, col = lid % BN, i = i0 + row, j = j0 + col;
  ACC_T sums[EACH];
  add_slices(sums, tiles, row * SUM_LINE + col);
  const long at = i * ldo + j;
  UNROLL for (int n = 0; n < EACH; ++n) STORE_RESULT_AT(at + n * ROWS * ldo, i + n * ROWS, j, sums[n], RESULT);
}
