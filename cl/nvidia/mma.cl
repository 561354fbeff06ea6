/* mma: out = A B on the matrix units of sm_80 and later: fragments multiplied by mma.sync, tiles
 * filled by cp.async.
 *
 *                        BN
 *                 +---------------+        sub-group (y, x): SGM x SGN of the tile, made of
 *      K: 128     | B             |        SGM / 16 x SGN / 8 fragments
 *      bytes      +---------------+
 *     +------+    +-------+-------+        STAGES blocks of K in local memory: one is multiplied,
 *  BM | A    |    | (0,0) | (0,1) | SGM    the others are on their way. A block is 128 bytes of K;
 *     |      |    +-------+-------+        fragments of 32 bytes of it are loaded one step ahead
 *     +------+    | (1,0) | (1,1) |
 *                 +-------+-------+
 *
 * A tile lies in lines of 128 bytes, 16-byte chunk c of line r at chunk c ^ (r % 8), so that the
 * eight rows that ldmatrix reads meet different banks. "Along K": a line holds K of one row of A
 * (column of B). "Across K" (16-bit types only): 64 rows (columns) at one k.
 *
 * Macros: BM BN, multiples of SGM, SGN and, across K, of 64; SGM a multiple of 16, SGN of 32; STAGES
 * 2 or more; GROUP; ELEMENT_BYTES; ACROSS_A ACROSS_B; PACKED_A PACKED_B 0, 1: multiply packed_a (M
 * lines along K of `pitch` elements, pack.cl) in place of a; those of the headers.
 * Operands lie on multiples of 16 bytes, and so does each of their rows.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "include/tile_order.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_mma.h"
#include "nvidia/fragment.h"

#if !defined(BM) || !defined(BN) || !defined(SGM) || !defined(SGN) || !defined(STAGES) || !defined(GROUP) || \
    !defined(ELEMENT_BYTES) || !defined(ACROSS_A) || !defined(ACROSS_B) || !defined(PACKED_A) || \
    !defined(PACKED_B)
#error "mma.cl needs BM BN SGM SGN STAGES GROUP ELEMENT_BYTES ACROSS_A ACROSS_B PACKED_A PACKED_B"
#endif
#define BK (128 / ELEMENT_BYTES)
#define SG_COLUMNS (BN / SGN)
#define WORK_ITEMS (32 * (BM / SGM) * SG_COLUMNS)
#define MT (SGM / 16)
#define NT (SGN / 8)
#define STEPS 4
#define STAGE_BYTES ((BM + BN) * 128)
#define LINES_AT_ONCE (WORK_ITEMS / 8)
#define COPIES_A (BM / LINES_AT_ONCE)
#define COPIES (COPIES_A + BN / LINES_AT_ONCE)

/* Copy i of this work-item's share of one operand's block at k: chunk id % 8 of line id / 8 + i
 * LINES_AT_ONCE. `source` is the chunk of line id / 8; `from` the first row of the tile, of `limit`. */
static inline void copy_share(
    const uint to, __global const uchar *source, const long pitch, const int across, const int i,
    const int limit, const int from, const int k, const int K)
{
  const int id = get_local_id(0);
  const int line0 = id / 8;
  const int line = i * LINES_AT_ONCE;
  const int c = id % 8 * (16 / ELEMENT_BYTES);
  const int x = across ? from + line / BK * 64 + c : k + c; /* along the line ... */
  const int y = across ? k + line0 % BK + line % BK : from + line0 + line; /* ... and which one */
  const int room = min(max(((across ? limit : K) - x) * ELEMENT_BYTES, 0), 16);
  const long at = across ? line % BK * pitch + line / BK * 128 : line * pitch;
  copy_16(to + (line0 + line) * 128 + ((id ^ line0) % 8) * 16, source + at,
          y < (across ? K : limit) ? room : 0);
}

/* Where this work-item's first chunk of the operand's first block lies. */
static inline long first_chunk(const long pitch, const int across, const int from)
{
  const int id = get_local_id(0);
  const int c = id % 8 * 16;
  return across ? id / 8 * pitch + from * (long)ELEMENT_BYTES + c : (from + id / 8) * pitch + c;
}

static inline void load_a(uint w[MT][4], const uint tile, const int row, const int step)
{
  const int lane = get_local_id(0) % 32;
  UNROLL for (int i = 0; i < MT; ++i) {
#if ACROSS_A
    const int k = step * 16 + lane / 16 * 8 + lane % 8;
    const int m = row + i * 16 + lane / 8 % 2 * 8;
    load_matrices_transposed(w[i], tile + m / 64 * (BK * 128) + k * 128 + (m / 8 % 8 ^ lane % 8) * 16);
#else
    const int m = row + i * 16 + lane % 16;
    load_matrices(w[i], tile + m * 128 + (step * 2 + lane / 16 ^ lane % 8) * 16);
#endif
    for (int e = 0; e < 4; ++e) w[i][e] = mma_operand(w[i][e]);
  }
}

static inline void load_b(uint w[NT][2], const uint tile, const int column, const int step)
{
  const int lane = get_local_id(0) % 32;
  UNROLL for (int j = 0; j < NT; j += 2) {
#if ACROSS_B
    const int k = step * 16 + lane / 8 % 2 * 8 + lane % 8;
    const int n = column + j * 8 + lane / 16 * 8;
    load_matrices_transposed(w[j], tile + n / 64 * (BK * 128) + k * 128 + (n / 8 % 8 ^ lane % 8) * 16);
#else
    const int n = column + j * 8 + lane / 16 * 8 + lane % 8;
    load_matrices(w[j], tile + n * 128 + (step * 2 + lane / 8 % 2 ^ lane % 8) * 16);
#endif
    for (int e = 0; e < 4; ++e) w[j + e / 2][e % 2] = mma_operand(w[j + e / 2][e % 2]);
  }
}

/* What is multiplied; packed_* are only read where PACKED_* is 1. */
#define PACKED_ARGS __global const uchar *packed_a, __global const uchar *packed_b, const long pitch
#define SOURCE_A (PACKED_A ? packed_a + z * M * pitch * ELEMENT_BYTES : (__global const uchar *)a)
#define SOURCE_B (PACKED_B ? packed_b + z * N * pitch * ELEMENT_BYTES : (__global const uchar *)b)

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma(GEMM_ARGS, PACKED_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  const int sub_group = get_local_id(0) / 32;
  const int row = sub_group / SG_COLUMNS * SGM;
  const int column = sub_group % SG_COLUMNS * SGN;
  const int2 origin = tile_at(get_group_id(0), (M + BM - 1) / BM, (N + BN - 1) / BN) * (int2)(BM, BN);
  const int blocks = (K + BK - 1) / BK;
  const uint tile0 = local_address(tiles);
  const long pitch_a = (PACKED_A ? pitch : lda) * ELEMENT_BYTES;
  const long pitch_b = (PACKED_B ? pitch : ldb) * ELEMENT_BYTES;
  const long block_a = ACROSS_A ? BK * pitch_a : 128;
  const long block_b = ACROSS_B ? BK * pitch_b : 128;
  __global const uchar *from_a = SOURCE_A + first_chunk(pitch_a, ACROSS_A, origin.s0);
  __global const uchar *from_b = SOURCE_B + first_chunk(pitch_b, ACROSS_B, origin.s1);

  mma_acc acc[MT][4 * NT];
  UNROLL for (int i = 0; i < MT; ++i)
    UNROLL for (int j = 0; j < 4 * NT; ++j) acc[i][j] = 0;

  /* Copy c of the block that is `filled`; past the last block, of zeros that nobody reads. */
  int filled = 0;
#define COPY(c)                                                                                    \
  do {                                                                                             \
    const uint to_ = tile0 + filled % STAGES * STAGE_BYTES;                                        \
    if ((c) < COPIES_A)                                                                            \
      copy_share(to_, from_a, pitch_a, ACROSS_A, c, M, origin.s0, filled * BK, K);                 \
    else                                                                                           \
      copy_share(to_ + BM * 128, from_b, pitch_b, ACROSS_B, (c) - COPIES_A, N, origin.s1, filled * BK, K); \
  } while (0)
#define FILLED                                    \
  do {                                            \
    copies_commit();                              \
    ++filled;                                     \
    from_a += block_a;                            \
    from_b += block_b;                            \
  } while (0)
  for (int s = 0; s < STAGES - 1; ++s) {
    UNROLL for (int c = 0; c < COPIES; ++c) COPY(c);
    FILLED;
  }
  for (int block = 0; block < blocks; ++block) {
    uint a_words[2][MT][4];
    uint b_words[2][NT][2];
    const uint tile_a = tile0 + block % STAGES * STAGE_BYTES;
    const uint tile_b = tile_a + BM * 128;
    copies_wait(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    load_a(a_words[0], tile_a, row, 0);
    load_b(b_words[0], tile_b, column, 0);
    UNROLL for (int step = 0; step < STEPS; ++step) {
      if (step + 1 < STEPS) {
        load_a(a_words[(step + 1) % 2], tile_a, row, step + 1);
        load_b(b_words[(step + 1) % 2], tile_b, column, step + 1);
      }
      UNROLL for (int i = 0; i < MT; ++i) {
        UNROLL for (int j = 0; j < NT; ++j) mma(acc[i] + 4 * j, a_words[step % 2][i], b_words[step % 2][j]);
        /* the next block's copies, spread over this block's multiplications */
        UNROLL for (int c = 0; c < COPIES; ++c)
          if (c * STEPS * MT / COPIES == step * MT + i) COPY(c);
      }
    }
    FILLED;
  }
  UNROLL for (int i = 0; i < MT; ++i)
    STORE_FRAGMENTS(origin.s0 + row + 16 * i + (int)get_local_id(0) % 32 / 4, origin.s1 + column, acc[i], NT);
}
