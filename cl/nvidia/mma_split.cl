/* mma_split: out = A B on the matrix units of sm_80, of operands that split.cl has packed: what wgmma_split.cl is on
 * sm_90a, by instructions that need no rewriting of the program.
 *
 *                        BN
 *      a block    +---------------+        sub-group (y, x): SGM x SGN of the tile, made of
 *      of 128     | B             |        SGM / 16 x SGN / 8 fragments
 *      bytes      +---------------+
 *     +------+    +-------+-------+        STAGES blocks in local memory: one is multiplied, the others are
 *  BM | A    |    | (0,0) | (0,1) | SGM    on their way by cp.async. 16-byte chunk c of line r lies at
 *     |      |    +-------+-------+        chunk c ^ (r % 8), so that the eight rows that ldmatrix reads
 *     +------+    | (1,0) | (1,1) |        meet different banks
 *                 +-------+-------+
 *
 * A block holds 64 bytes of hi and 64 of lo of the same k: hi lo + lo hi + hi hi. ROUND blocks are summed from zero,
 * and rounds in float32 registers, because the units truncate where they accumulate.
 *
 * Macros: BM BN, multiples of SGM, SGN; SGM a multiple of 16, SGN of 16; STAGES 2 or more; GROUP; ELEMENT_BYTES of
 * what is multiplied; SPLIT 1, 2 (split.h); those of the headers. `pitch`: elements of a packed line, both parts.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "include/tile_order.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_mma.h"
#include "nvidia/split.h"
#include "nvidia/split_guard.h"
#include "nvidia/fragment.h"

#if !defined(BM) || !defined(BN) || !defined(SGM) || !defined(SGN) || !defined(STAGES) || !defined(GROUP) || \
    !defined(ELEMENT_BYTES)
#error "mma_split.cl needs BM BN SGM SGN STAGES GROUP ELEMENT_BYTES"
#endif
#define BK (64 / ELEMENT_BYTES)
#define ROUND 2
#define SG_COLUMNS (BN / SGN)
#define WORK_ITEMS (32 * (BM / SGM) * SG_COLUMNS)
#define MT (SGM / 16)
#define NT (SGN / 8)
#define LINES_AT_ONCE (WORK_ITEMS / 8)
#define STAGE_BYTES ((BM + BN) * 128)

/* Copies a block of `extent` lines from line `from` on, of `limit`; zeros behind them. */
INLINE void copy_lines(
    const uint to, __global const uchar *packed, const long pitch_bytes, const int extent, const int from,
    const int limit, const int block)
{
  const int id = get_local_id(0);
  UNROLL for (int line = id / 8; line < extent; line += LINES_AT_ONCE) {
    const int inside = min(from + line, limit - 1);
    copy_16(to + line * 128 + (id ^ line) % 8 * 16, packed + inside * pitch_bytes + block * 128 + id % 8 * 16,
            from + line < limit ? 16 : 0);
  }
}

/* Fragments of 32 bytes of K, from 16-byte chunk `chunk` on. */
INLINE void load_a(uint w[MT][4], const uint tile, const int row, const int chunk)
{
  const int lane = get_local_id(0) % 32;
  UNROLL for (int i = 0; i < MT; ++i)
    load_matrices(w[i], tile + (row + i * 16 + lane % 16) * 128 + (chunk + lane / 16 ^ lane % 8) * 16);
}
INLINE void load_b(uint w[NT][2], const uint tile, const int column, const int chunk)
{
  const int lane = get_local_id(0) % 32;
  UNROLL for (int j = 0; j < NT; j += 2) {
    uint four[4];
    load_matrices(four, tile + (column + j * 8 + lane / 16 * 8 + lane % 8) * 128 +
                            (chunk + lane / 8 % 2 ^ lane % 8) * 16);
    w[j][0] = four[0], w[j][1] = four[1], w[j + 1][0] = four[2], w[j + 1][1] = four[3];
  }
}

INLINE void multiply(mma_acc acc[MT][4 * NT], uint a[MT][4], uint b[NT][2])
{
  UNROLL for (int i = 0; i < MT; ++i)
    UNROLL for (int j = 0; j < NT; ++j) mma(acc[i] + 4 * j, a[i], b[j]);
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma_split(
    GEMM_ARGS, __global uchar *packed_a, __global uchar *packed_b, const long pitch SPLIT_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  const int columns = COLUMNS, depth = DEPTH;
  SPLIT_FIRST;
  SPLIT_THEN(;);
  const int sub_group = get_local_id(0) / 32;
  const int row = sub_group / SG_COLUMNS * SGM;
  const int column = sub_group % SG_COLUMNS * SGN;
  const int2 origin = tile_at(get_group_id(0), (M + BM - 1) / BM, (columns + BN - 1) / BN) * (int2)(BM, BN);
#if EXPONENTS
  __local int near[BM + BN];
  for (int i = get_local_id(0); i < BM + BN; i += WORK_ITEMS) {
    const int at = i < BM ? origin.s0 + i : origin.s1 + i - BM;
    near[i] = at < (i < BM ? M : columns) ? exponents[i < BM ? at : M + at] : 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#define ROW_EXPONENT(i) near[(i) - origin.s0]
#define COLUMN_EXPONENT(j) near[BM + (j) - origin.s1]
#endif
  const int blocks = (depth + BK - 1) / BK;
  const uint tile0 = local_address(tiles);
  const long pitch_bytes = pitch * ELEMENT_BYTES;
  packed_a += z * M * pitch_bytes;
  packed_b += z * columns * pitch_bytes;

  /* Past the last block nothing is copied, but a group is closed: they are counted. */
#define COPY(block)                                                                             \
  do {                                                                                          \
    const uint to_ = tile0 + (block) % STAGES * STAGE_BYTES;                                    \
    if ((block) < blocks) {                                                                     \
      copy_lines(to_, packed_a, pitch_bytes, BM, origin.s0, M, block);                          \
      copy_lines(to_ + BM * 128, packed_b, pitch_bytes, BN, origin.s1, columns, block);         \
    }                                                                                           \
    copies_commit();                                                                            \
  } while (0)
  for (int s = 0; s < STAGES - 1; ++s) COPY(s);

  mma_acc acc[MT][4 * NT], sum[MT][4 * NT];
  UNROLL for (int i = 0; i < MT; ++i)
    UNROLL for (int j = 0; j < 4 * NT; ++j) acc[i][j] = sum[i][j] = 0;
  for (int block = 0; block < blocks; ++block) {
    const uint tile_a = tile0 + block % STAGES * STAGE_BYTES;
    const uint tile_b = tile_a + BM * 128;
    copies_wait(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    COPY(block + STAGES - 1);
    UNROLL for (int step = 0; step < 2; ++step) {
      uint a_hi[MT][4], a_lo[MT][4], b_hi[NT][2], b_lo[NT][2];
      load_a(a_hi, tile_a, row, 2 * step);
      load_b(b_lo, tile_b, column, 2 * step + 4);
      multiply(acc, a_hi, b_lo);
      load_a(a_lo, tile_a, row, 2 * step + 4);
      load_b(b_hi, tile_b, column, 2 * step);
      multiply(acc, a_lo, b_hi);
      multiply(acc, a_hi, b_hi);
    }
    if (block % ROUND == ROUND - 1 || block + 1 == blocks) {
      UNROLL for (int i = 0; i < MT; ++i)
        UNROLL for (int j = 0; j < 4 * NT; ++j) {
          sum[i][j] += acc[i][j];
          acc[i][j] = 0;
        }
    }
  }
  UNROLL for (int i = 0; i < MT; ++i)
    STORE_FRAGMENTS(origin.s0 + row + 16 * i + (int)get_local_id(0) % 32 / 4, origin.s1 + column, sum[i], NT);
}
