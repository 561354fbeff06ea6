/* wgmma: out = A B on the matrix units of sm_90a, tiles filled by the copy engine.
 *
 *                        BN                quartet 0: one work-item asks for the copies
 *                 +--------------+         quartet 1 .. BM / 64: each multiplies 64 rows
 *      K: 128     | B            |
 *      bytes      +--------------+         STAGES blocks of K are in flight; of stage s
 *     +------+    +--------------+           full[s]  completes when its copies have landed,
 *  BM | A    |    | quartet 1    |           empty[s] when every sub-group has multiplied it
 *     |      |    | quartet 2    |
 *     +------+    +--------------+         work-group g computes tiles g, g + groups, ...
 *
 * SPLIT_K 1: K is cut into `shares`, and each share of a tile is a tile of its own, which is left in
 * `partial` (share after share, rows of N rounded up to even) for reduce.cl.
 *
 * Copies of a work-group's next tile run while the last one is stored. Each work-group writes the
 * tensor maps of A and B itself, in its slot of `maps` (32 longs).
 *
 * PARTS 2: the packed operands are sums of two parts, hi and lo (pack.cl, split.cl); a block adds
 * hi lo + lo hi + hi hi. PROMOTE 1: each block is summed from zero, and blocks in float32 registers,
 * because the units truncate where they accumulate.
 *
 * Macros: BM a multiple of 64, BN = WGMMA_N, STAGES, GROUP; ELEMENT_BYTES of what is multiplied, its
 * MAP_TYPE (ptx_map.h); PACKED_A PACKED_B 0, 1: multiply packed_a (M rows along K, `pitch` elements
 * each, a part after the other) in place of a; PARTS 1, 2; PROMOTE 0, 1; SPLIT_K 0, 1; SPLIT (split.h); those of
 * the headers.
 * Operands lie on multiples of 16 bytes, and so does each of their rows.
 * Technique: NVIDIA's description of wgmma and of the tensor memory accelerator in the PTX manual.
 */
#if !defined(BM) || !defined(BN) || !defined(STAGES) || !defined(GROUP) || !defined(ELEMENT_BYTES) || \
    !defined(MAP_TYPE) || !defined(PACKED_A) || !defined(PACKED_B) || !defined(PARTS) || !defined(PROMOTE) || \
    !defined(SPLIT_K)
#error "wgmma.cl needs BM BN STAGES GROUP ELEMENT_BYTES MAP_TYPE PACKED_A PACKED_B PARTS PROMOTE SPLIT_K"
#endif
#define BK (128 / ELEMENT_BYTES)
#define QUARTETS (BM / 64)
#define WORK_ITEMS (128 * (QUARTETS + 1))
#define PART_A (BM * 128)
#define PART_B (BN * 128)
#define STAGE_BYTES ((PART_A + PART_B) * PARTS)
#define CHUNK (64 * 128) /* 64 rows of A along K, or BK = 64 rows of 64 columns across K */

/* Asks for a block of one operand: `extent` rows (columns of B) from `row` on, of `limit`. */
inline void fill(
    const uint to, __global const ulong *map, const int across, const int extent, const int limit,
    const int row, const int k, const uint bar)
{
  for (int p = 0; p < PARTS; ++p) {
    if (!across) copy_box(to + p * extent * 128, map, k, p * limit + row, bar);
    for (int i = 0; i < (across ? extent / 64 : 0); ++i)
      copy_box(to + i * CHUNK, map, row + 64 * i, k, bar);
  }
}

#define PRODUCTS (2 * PARTS - 1)

/* Issues products first .. end - 1 of a block's parts. */
__attribute__((always_inline)) inline void multiply_parts(
    wgmma_acc *acc, const uint tile_a, const uint tile_b, const int first, const int end)
{
  #pragma unroll
  for (int product = first; product < end; ++product) {
    const int lo_a = product == 1 ? PARTS - 1 : 0;
    const int lo_b = product == 0 ? PARTS - 1 : 0;
    const ulong a = wgmma_tile(tile_a + lo_a * PART_A, CHUNK);
    const ulong b = wgmma_tile(tile_b + lo_b * PART_B, CHUNK);
    #pragma unroll
    for (int step = 0; step < 4; ++step)
      wgmma(acc, a + step * WGMMA_STEP_A, b + step * WGMMA_STEP_B, !PROMOTE || product || step);
  }
}

/* What is multiplied; packed_* are only read where PACKED_* is 1. */
#define PACKED_ARGS __global const uchar *packed_a, __global const uchar *packed_b, const long pitch
#define SOURCE_A (PACKED_A ? PACKED_AT(packed_a, M) : (__global const uchar *)a)
#define SOURCE_B (PACKED_B ? PACKED_AT(packed_b, N) : (__global const uchar *)b)
#define PACKED_AT(p, rows) ((p) + z * PARTS * (rows) * pitch * ELEMENT_BYTES)

/* Where blocks are added up, one quartet adds while the other multiplies: quartets 1 and 2 take turns
 * in issuing, and the turn passes on when the last of three products is still under way. */
#define TAKE_TURNS (PROMOTE && PARTS == 2 && QUARTETS == 2)
inline void wait_for_turn(const int quartet) { asm volatile("bar.sync %0, 256;" :: "r"(quartet) : "memory"); }
inline void give_turn(const int quartet) { asm volatile("bar.arrive %0, 256;" :: "r"(quartet) : "memory"); }

/* This work-item's accumulators, as they are, into rows of `pitch` elements, an even number. */
__attribute__((always_inline)) inline void store_partial(
    __global ACC_T *to, const int M, const long pitch, const int row, const int column, const wgmma_acc *acc)
{
  #pragma unroll
  for (int h = 0; h < 2; ++h)
    #pragma unroll
    for (int j = 0; j < BN / 8; ++j) {
      const int at = column + 8 * j + (int)get_local_id(0) % 4 * 2;
      if (row + 8 * h < M && at < pitch) {
        to[(row + 8 * h) * pitch + at] = (ACC_T)acc[4 * j + 2 * h];
        to[(row + 8 * h) * pitch + at + 1] = (ACC_T)acc[4 * j + 2 * h + 1];
      }
    }
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void matmul_wgmma(
    GEMM_ARGS, __global ulong *maps, __global ACC_T *partial, const int shares, PACKED_ARGS SPLIT_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local ulong bars[2 * STAGES];
  __local uint scratch[64] __attribute__((aligned(128)));
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  SPLIT_BEGIN;
  const int id = get_local_id(0);
  const int quartet = id / 128;
  const int tiles_m = (M + BM - 1) / BM;
  const int tiles_n = (N + BN - 1) / BN;
  const int all_tiles = tiles_m * tiles_n;
  const int all_blocks = (K + BK - 1) / BK;
  const int share_blocks = SPLIT_K ? (all_blocks + shares - 1) / shares : all_blocks;
  const uint tile0 = local_address(tiles);
  const uint full = local_address(bars);
  const uint empty = full + 8 * STAGES;
  __global ulong *map_a = maps + 32 * (get_group_id(2) * get_num_groups(0) + get_group_id(0));
  __global ulong *map_b = map_a + 16;

  if (id / 32 == 0)
    WRITE_MAP(map_a, scratch, SOURCE_A, WGMMA_ACROSS_A ? K : PARTS * M, WGMMA_ACROSS_A ? M : K,
              (PACKED_A ? pitch : lda) * ELEMENT_BYTES, WGMMA_ACROSS_A ? BK : BM,
              WGMMA_ACROSS_A ? 64 : BK, MAP_TYPE);
  if (id / 32 == 1)
    WRITE_MAP(map_b, scratch + 32, SOURCE_B, WGMMA_ACROSS_B ? K : PARTS * N, WGMMA_ACROSS_B ? N : K,
              (PACKED_B ? pitch : ldb) * ELEMENT_BYTES, WGMMA_ACROSS_B ? BK : BN,
              WGMMA_ACROSS_B ? 64 : BK, MAP_TYPE);
  if (id == 64) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, 4 * QUARTETS);
    }
    mbarrier_fence();
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);

  int stage = 0;
  uint phase = 0;
#define FOR_EACH_TILE \
  for (int at_ = get_group_id(0); at_ < all_tiles * (SPLIT_K ? shares : 1); at_ += get_num_groups(0))
#define TILE_BEGIN                                                                  \
  const int share = SPLIT_K ? at_ / all_tiles : 0;                                  \
  const int2 origin = tile_at(at_ - share * all_tiles, tiles_m, tiles_n) * (int2)(BM, BN);       \
  const int first_block = share * share_blocks;                                     \
  const int end_block = min(first_block + share_blocks, all_blocks)
#define NEXT_STAGE                            \
  do {                                        \
    if (++stage == STAGES) {                  \
      stage = 0;                              \
      phase ^= 1;                             \
    }                                         \
  } while (0)
  if (quartet == 0) {
    if (id != 0) return;
    map_acquire(map_a);
    map_acquire(map_b);
    FOR_EACH_TILE {
      TILE_BEGIN;
      for (int block = first_block; block < end_block; ++block) {
        const uint at = tile0 + stage * STAGE_BYTES;
        const uint bar = full + 8 * stage;
        mbarrier_wait(empty + 8 * stage, phase ^ 1);
        mbarrier_expect(bar, STAGE_BYTES);
        fill(at, map_a, WGMMA_ACROSS_A, BM, M, origin.s0, block * BK, bar);
        fill(at + PARTS * PART_A, map_b, WGMMA_ACROSS_B, BN, N, origin.s1, block * BK, bar);
        NEXT_STAGE;
      }
    }
    return;
  }

  const int lane = id % 32;
  bool first = true;
#define RELEASE(s) \
  do { if (lane == 0) mbarrier_arrive(empty + 8 * (s)); } while (0)
  FOR_EACH_TILE {
    TILE_BEGIN;
    wgmma_acc acc[WGMMA_ACC];
    wgmma_acc sum[PROMOTE ? WGMMA_ACC : 1];
    #pragma unroll
    for (int i = 0; i < WGMMA_ACC; ++i) acc[i] = 0;
    #pragma unroll
    for (int i = 0; i < (PROMOTE ? WGMMA_ACC : 0); ++i) sum[i] = 0;
    int last = 0;
    for (int block = first_block; block < end_block; ++block) {
      const uint at = tile0 + stage * STAGE_BYTES;
      mbarrier_wait(full + 8 * stage, phase);
      wgmma_fence();
      const uint mine = at + (quartet - 1) * CHUNK;
      if (TAKE_TURNS && !(quartet == 1 && first)) wait_for_turn(quartet);
      if (PARTS == 2) multiply_parts(acc, mine, at + PARTS * PART_A, 0, PRODUCTS - 1);
      if (PARTS == 2) wgmma_commit();
      multiply_parts(acc, mine, at + PARTS * PART_A, PRODUCTS - 1, PRODUCTS);
      wgmma_commit();
      if (PROMOTE) {
        if (TAKE_TURNS) {
          const bool last_block = block + 1 == end_block && at_ + (int)get_num_groups(0) >= all_tiles;
          wgmma_wait_previous();
          if (!(quartet == 2 && last_block)) give_turn(3 - quartet);
          first = false;
        }
        wgmma_wait(acc);
        RELEASE(stage);
        #pragma unroll
        for (int i = 0; i < (PROMOTE ? WGMMA_ACC : 0); ++i) sum[i] += acc[i];
      } else {
        wgmma_wait_previous();
        if (block > first_block) RELEASE(last);
        last = stage;
      }
      NEXT_STAGE;
    }
    if (!PROMOTE) {
      wgmma_wait(acc);
      if (first_block < end_block) RELEASE(last);
    }
    const int row = origin.s0 + (quartet - 1) * 64 + id % 128 / 32 * 16 + lane / 4;
#if SPLIT_K
    const long pitch_n = (N + 1) / 2 * 2;
    store_partial(partial + (z * shares + share) * M * pitch_n, M, pitch_n, row, origin.s1, acc);
#else
    STORE_FRAGMENTS(row, origin.s1, PROMOTE ? sum : acc, BN / 8);
#endif
  }
}
