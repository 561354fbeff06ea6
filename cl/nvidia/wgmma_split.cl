/* wgmma_split: out = A B on the matrix units of sm_90a, of operands that split.cl has packed.
 *
 *                        BN                quartet 0: one work-item asks for the copies
 *      a block    +--------------+         quartets 1 and 2 multiply: BM 128, 64 rows each;
 *      of 128     | B            |         BM 64, the same rows, every other round of K
 *      bytes      +--------------+
 *     +------+    +--------------+         STAGES times BLOCKS blocks are in flight; of stage s
 *  BM | A    |    | quartet 1    |           full[s]  completes when its copies have landed,
 *     |      |    | quartet 2    |           empty[s] when every sub-group has multiplied it
 *     +------+    +--------------+         work-group g computes tiles g, g + groups, ...
 *
 * A block holds 64 bytes of hi and 64 of lo of the same k (PARTS 2: hi lo + lo hi + hi hi), or 128 bytes of k.
 * The units truncate where they accumulate: so a round of ROUND stages is summed from zero, what is small first, and
 * rounds in float32 registers. A quartet that adds does not multiply: the two take turns, and the turn passes on when
 * a round's last products are issued.
 *
 * Macros: BM 64, 128, BN = WGMMA_N, STAGES, GROUP; ELEMENT_BYTES of what is multiplied, its MAP_TYPE (ptx_map.h);
 * SPLIT (split.h); those of the headers. `pitch`: elements of a packed line, all parts.
 * Technique: as wgmma.cl's.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "include/tile_order.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_map.h"
#include "nvidia/ptx_wgmma.h"
#include "nvidia/ptx_group.h"
#include "nvidia/split.h"
#include "nvidia/split_guard.h"
#include "nvidia/fragment.h"

#if !defined(BM) || !defined(BN) || !defined(STAGES) || !defined(GROUP) || !defined(ELEMENT_BYTES) || \
    !defined(MAP_TYPE)
#error "wgmma_split.cl needs BM BN STAGES GROUP ELEMENT_BYTES MAP_TYPE"
#endif
#define PARTS (SPLIT ? 2 : 1)
#define BLOCK (128 / ELEMENT_BYTES) /* elements of a packed line */
#define BK (BLOCK / PARTS)
#define BLOCKS 2 /* a stage */
#define ROUND (PARTS == 2 ? 1 : 2)
#define WORK_ITEMS 384
#define TILE_A (BM * 128)
#define TILE_B (BN * 128)
#define BLOCK_BYTES (TILE_A + TILE_B)
#define STAGE_BYTES (BLOCKS * BLOCK_BYTES)
#define CHUNK (64 * 128) /* 64 rows of A */
#define SAME_ROWS (BM == 64)
#define PRODUCTS (2 * PARTS - 1)
#define STEPS (4 / PARTS)
#define LO (64 / 16) /* from hi to lo, as wgmma_tile counts */

/* Issues the products of a stage; the first of all replaces the sums unless `keep`. */
INLINE void multiply(
    wgmma_acc *acc, const uint tile_a, const uint tile_b, const int keep)
{
  UNROLL for (int product = 0; product < PRODUCTS; ++product)
    UNROLL for (int block = 0; block < BLOCKS; ++block) {
      const ulong a = wgmma_tile(tile_a + block * BLOCK_BYTES, CHUNK) + (PARTS == 2 && product == 1 ? LO : 0);
      const ulong b = wgmma_tile(tile_b + block * BLOCK_BYTES, CHUNK) + (PARTS == 2 && product == 0 ? LO : 0);
      UNROLL for (int step = 0; step < STEPS; ++step)
        wgmma(acc, a + step * WGMMA_STEP_A, b + step * WGMMA_STEP_B, product || block || step || keep);
    }
}

/* Exponents of a quartet's 64 rows and BN columns, in local memory when it stores: asked for when the tile begins. */
#if EXPONENTS
#define ASK_EXPONENTS(row, column)                                                        \
  const int i_ = (row) + id % 64, j_ = (column) + id % 128;                               \
  const int row_exponent = i_ < M ? exponents[i_] : 0;                                    \
  const int column_exponent = id % 128 < BN && j_ < columns ? exponents[M + j_] : 0
#define HAVE_EXPONENTS                                                                    \
  do {                                                                                    \
    if (id % 128 < 64) near[id % 64] = row_exponent;                                      \
    if (id % 128 < BN) near[64 + id % 128] = column_exponent;                             \
    quartet_barrier(4 + quartet);                                                         \
  } while (0)
#define ROW_EXPONENT(i) near[(i) - (origin.s0 + my_rows * 64)]
#define COLUMN_EXPONENT(j) near[64 + (j) - origin.s1]
#else
#define ASK_EXPONENTS(row, column)
#define HAVE_EXPONENTS
#endif

/* Barriers of both quartets: 1 and 2, a quartet's turn; 3, sums are handed over. Of one: 5, 6.
 *
 * Of two quartets with the same rows each gets the sum of both for its half of the columns, in the first half of `sum`. */
#define HALF (WGMMA_ACC / 2)
INLINE void add_up(float *sum, __local float *handed, const int quartet)
{
  __local float *mine = handed + get_local_id(0) % 128;
  const bool right = quartet == 2;
  meet(3); /* what was handed over before is taken */
  UNROLL for (int i = 0; i < HALF; ++i) {
    mine[128 * (right * HALF + i)] = right ? sum[i] : sum[HALF + i];
    sum[i] = right ? sum[HALF + i] : sum[i];
  }
  meet(3);
  UNROLL for (int i = 0; i < HALF; ++i) sum[i] += mine[128 * (!right * HALF + i)];
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma_split(
    GEMM_ARGS, __global ulong *maps, __global uchar *packed_a, __global uchar *packed_b,
    const long pitch SPLIT_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64] ALIGNED(128);
  __local float handed[SAME_ROWS ? 128 * WGMMA_ACC : 1];
  __local int both_near[2][64 + BN];
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  const int columns = COLUMNS, depth = DEPTH;
  SPLIT_FIRST;
  const int id = get_local_id(0);
  const int quartet = id / 128;
  const int tiles_m = (M + BM - 1) / BM;
  const int tiles_n = (columns + BN - 1) / BN;
  const int stages = (depth + BK * BLOCKS - 1) / (BK * BLOCKS);
  const int line = (depth + BK - 1) / BK * BLOCK;
  const uint tile0 = local_address(tiles);
  const uint full = local_address(bars);
  const uint empty = full + 8 * STAGES;
  __global ulong *slot = maps + MAP_SLOT * (get_group_id(2) * get_num_groups(0) + get_group_id(0));

#define KEEP_LINES(n, packed, lines, box)                                                             \
  KEEP_MAP(slot, n, scratch + 32 * (n), (packed) + z * (lines) * pitch * ELEMENT_BYTES, lines, min(line, (int)pitch), \
           pitch * ELEMENT_BYTES, 1, pitch * ELEMENT_BYTES, box, BLOCK, MAP_TYPE)
  if (id / 32 == 0) KEEP_LINES(0, packed_a, M, BM);
  if (id / 32 == 1) KEEP_LINES(1, packed_b, columns, BN);
  if (id == 64) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, SAME_ROWS ? 4 : 8);
    }
    mbarrier_fence();
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);

  uint before = 0; /* stages of this work-group's earlier tiles */
#define FOR_EACH_TILE \
  for (int t_ = get_group_id(0); t_ < tiles_m * tiles_n; t_ += get_num_groups(0), before += stages)
#define ORIGIN (tile_at(t_, tiles_m, tiles_n) * (int2)(BM, BN))
#define PLACE(stage) ((before + (stage)) % STAGES)
#define PHASE(stage) ((before + (stage)) / STAGES & 1)
#define COPY_STAGE(origin, stage)                                                                 \
  do {                                                                                            \
    const uint at_ = tile0 + PLACE(stage) * STAGE_BYTES, bar_ = full + 8 * PLACE(stage);          \
    mbarrier_expect(bar_, STAGE_BYTES);                                                           \
    UNROLL for (int block_ = 0; block_ < BLOCKS; ++block_) {                           \
      const uint to_ = at_ + block_ * BLOCK_BYTES;                                                \
      copy_box(to_, slot, (BLOCKS * (stage) + block_) * BLOCK, (origin).s0, 0, bar_);             \
      copy_box(to_ + TILE_A, slot + 16, (BLOCKS * (stage) + block_) * BLOCK, (origin).s1, 0, bar_); \
    }                                                                                             \
  } while (0)
  /* The first copies run while it is judged whether they serve. */
  const int ahead = min(stages, STAGES);
  if (id == 0) {
    const int2 origin = tile_at(get_group_id(0), tiles_m, tiles_n) * (int2)(BM, BN);
    map_acquire(slot);
    map_acquire(slot + 16);
    for (int stage = 0; stage < ahead; ++stage) COPY_STAGE(origin, stage);
  }
#define LEAVE \
  for (int stage = 0; id == 0 && stage < ahead; ++stage) mbarrier_wait(full + 8 * PLACE(stage), PHASE(stage))
  SPLIT_THEN(LEAVE);
  if (quartet == 0) {
    if (id != 0) return;
    FOR_EACH_TILE {
      const int2 origin = ORIGIN;
      for (int stage = before ? 0 : ahead; stage < stages; ++stage) {
        mbarrier_wait(empty + 8 * PLACE(stage), PHASE(stage) ^ 1);
        COPY_STAGE(origin, stage);
      }
    }
    return;
  }

  const int lane = id % 32;
  const int my_rows = SAME_ROWS ? 0 : quartet - 1; /* in units of 64 */
  __local int *near = both_near[quartet - 1];
  bool again = false;
  FOR_EACH_TILE {
    const int2 origin = ORIGIN;
    ASK_EXPONENTS(origin.s0 + my_rows * 64, origin.s1);
    const bool last_tile = t_ + (int)get_num_groups(0) >= tiles_m * tiles_n;
    wgmma_acc acc[WGMMA_ACC];
    float sum[WGMMA_ACC];
    UNROLL for (int i = 0; i < WGMMA_ACC; ++i) acc[i] = sum[i] = 0;
    const int owners = SAME_ROWS ? 2 : 1; /* quartets between which rounds are dealt out */
    const int turns = (stages + owners * ROUND - 1) / (owners * ROUND);
    for (int turn = 0; turn < turns; ++turn) {
      const int first = (SAME_ROWS ? 2 * turn + quartet - 1 : turn) * ROUND;
      const int end = min(first + ROUND, stages);
      if (quartet == 2 || turn > 0 || again) meet(quartet);
      for (int stage = first; stage < end; ++stage) {
        const uint at = tile0 + PLACE(stage) * STAGE_BYTES;
        mbarrier_wait(full + 8 * PLACE(stage), PHASE(stage));
        wgmma_fence();
        multiply(acc, at + my_rows * CHUNK, at + TILE_A, stage > first);
        wgmma_commit();
      }
      if (quartet == 1 || turn + 1 < turns || !last_tile) announce(3 - quartet);
      wgmma_wait(acc);
      if (first >= stages) continue;
      for (int stage = first; stage < end; ++stage)
        if (lane == 0) mbarrier_arrive(empty + 8 * PLACE(stage));
      UNROLL for (int i = 0; i < WGMMA_ACC; ++i) sum[i] += acc[i];
    }
    if (SAME_ROWS) add_up(sum, handed, quartet);
    again = true;
    HAVE_EXPONENTS;
    const int column = origin.s1 + (SAME_ROWS && quartet == 2 ? BN / 2 : 0);
    STORE_FRAGMENTS(origin.s0 + my_rows * 64 + id % 128 / 32 * 16 + lane / 4, column, sum, BN / 8 / owners);
  }
}
