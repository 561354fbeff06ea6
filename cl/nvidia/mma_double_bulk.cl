/* mma_double_bulk: out = A B in float64 on the matrix units of sm_90, tiles filled by the copy engine.
 *
 *                  BN                 STAGES blocks of K are in flight; of stage s
 *             +-----+-----+             full[s]  completes when its copies have landed,
 *    BK       |  B  |     |             empty[s] when every sub-group has read it
 *    +----+   +-----+-----+
 *    |    |   | SGM |     |           in the middle of each block one of the sub-groups, in turn, asks for
 * BM | A  |   | SGN |     |           the block that goes into the stage read before
 *    +----+   +-----+-----+
 *    |    |   |     |     |           work-group g computes tiles g, g + groups, ...; copies for the next
 *    +----+   +-----+-----+           tile run while one is stored
 *
 * SLICES of the sub-groups share each block's K, and are summed through local memory.
 * SPLIT_K 1: K is cut into `shares`, each of which is a tile of its own, left in `partial`, share after share
 * of a tile, for split_k.cl.
 *
 * A block of an operand lies in local memory as BK / 16 slices of BM / 16 (BN / 16) strips (ptx_strips.h).
 *
 * Macros: BM BN BK SGM SGN, multiples of 16; 4 or 8 sub-groups, SLICES of which divide them and BK / 16;
 * STAGES 2 and up; PACKED_A PACKED_B 0, 1: multiply packed_a (M rows along K, `pitch`
 * elements each) in place of a; SPLIT_K 0, 1; those of the headers.
 * Operands lie on multiples of 16 bytes, and so does each of their rows.
 * Technique: NVIDIA's description of mma and of the tensor memory accelerator in the PTX manual.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "include/tile_order.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_map.h"
#include "nvidia/ptx_strips.h"
#include "nvidia/fragment.h"
#include "nvidia/strip_fragments.h"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(SGM) || !defined(SGN) || !defined(STAGES) || \
    !defined(PACKED_A) || !defined(PACKED_B) || !defined(SPLIT_K) || !defined(SLICES)
#error "mma_double_bulk.cl needs BM BN BK SGM SGN STAGES PACKED_A PACKED_B SPLIT_K SLICES"
#endif
#define STEPS (BK / 8)
#define SLICE_STEPS (STEPS / SLICES)
#define CHUNK_A (BM * 128) /* 16 of K */
#define CHUNK_B (BN * 128)
#define BLOCK_A (CHUNK_A * (BK / 16))
#define STAGE_BYTES (BLOCK_A + CHUNK_B * (BK / 16))
#define SG_COLUMNS (BN / SGN)
#define SLICE_GROUPS (BM / SGM * SG_COLUMNS)
#define SUB_GROUPS (SLICE_GROUPS * SLICES)
#define WORK_ITEMS (32 * SUB_GROUPS)
#define STRIPS_A (SGM / 16)
#define STRIPS_B (SGN / 16)

/* What is multiplied; packed_* are only read where PACKED_* is 1. */
#define PACKED_ARGS __global const uchar *packed_a, __global const uchar *packed_b, const long pitch
#define SOURCE_A (PACKED_A ? packed_a + z * M * pitch * 8 : (__global const uchar *)a)
#define SOURCE_B (PACKED_B ? packed_b + z * N * pitch * 8 : (__global const uchar *)b)

/* One product's tiles, each cut into shares of `blocks` blocks of all_blocks. */
typedef struct { int tiles_m, tiles_n, shares, blocks, all_blocks; } work_t;

/* A place in the walk of a work-group over its tiles: a block of K of a tile, behind whose share's last
 * lies `end`. The tile after the last one is `shares` times all tiles or more. */
typedef struct { int tile, block, end; int2 origin; } place_t;

static inline place_t tile_begin(const int number, const work_t work)
{
  const int tiles = work.tiles_m * work.tiles_n;
  const int share = number / tiles;
  place_t place;
  place.tile = number;
  place.origin = tile_at(number - share * tiles, work.tiles_m, work.tiles_n) * (int2)(BM, BN);
  place.block = share * work.blocks;
  place.end = min(place.block + work.blocks, work.all_blocks);
  return place;
}

/* The place `blocks` further on. */
static inline place_t further(place_t place, const int blocks, const work_t work, const int groups)
{
  place.block += blocks;
  while (place.block >= place.end && place.tile < work.tiles_m * work.tiles_n * work.shares) {
    const int left = place.block - place.end;
    place = tile_begin(place.tile + groups, work);
    place.block += left;
  }
  return place;
}

#if SLICES > 1
/* Adds the slices' sums to slice 0's. */
INLINE void sum_slices(double *acc, __local double *sums, const int slice, const int item)
{
  for (int other = 1; other < SLICES; ++other) {
    UNROLL for (int i = 0; i < ACCS; ++i)
      if (slice == other) sums[i * 32 * SLICE_GROUPS + item] = acc[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int i = 0; i < ACCS; ++i)
      if (slice == 0) acc[i] += sums[i * 32 * SLICE_GROUPS + item];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
#endif

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma_double_bulk(
    GEMM_ARGS, __global ulong *maps, __global double *partial, const int shares, PACKED_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64] ALIGNED(128);
#if SLICES > 1
  __local double sums[ACCS * 32 * SLICE_GROUPS];
#endif
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  const int id = get_local_id(0), sub_group = id / 32;
  const int groups = get_num_groups(0);
  const int all_blocks = (K + BK - 1) / BK;
  const work_t work = {(M + BM - 1) / BM, (N + BN - 1) / BN, shares, (all_blocks + shares - 1) / shares, all_blocks};
  const int all_tiles = work.tiles_m * work.tiles_n * shares;
  const uint tile0 = local_address(tiles);
  const uint full = local_address(bars);
  const uint empty = full + 8 * STAGES;
  __global ulong *slot = maps + MAP_SLOT * (get_group_id(2) * groups + get_group_id(0));

  if (sub_group == 0)
    KEEP_STRIP_MAP(slot, 0, scratch, SOURCE_A, ACROSS_A, M, K, (PACKED_A ? pitch : lda) * 8, BM);
  if (sub_group == 1)
    KEEP_STRIP_MAP(slot, 1, scratch + 32, SOURCE_B, ACROSS_B, N, K, (PACKED_B ? pitch : ldb) * 8, BN);
  if (id == 64) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, SUB_GROUPS);
    }
    mbarrier_fence();
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (id % 32 == 0) {
    map_acquire(slot);
    map_acquire(slot + 16);
  }

  place_t now = tile_begin(get_group_id(0), work);
  int stage = 0;
  uint phase = 0;
  /* Asks for the block that is `lead` (under STAGES) further on, if there is one, once its stage is read. */
#define FILL(lead)                                                                             \
  do {                                                                                         \
    const place_t ahead_ = further(now, lead, work, groups);                                   \
    const int over_ = stage + (lead) >= STAGES;                                                \
    const int stage_ = stage + (lead) - over_ * STAGES;                                        \
    if (ahead_.tile < all_tiles) {                                                             \
      mbarrier_wait(empty + 8 * stage_, phase ^ over_ ^ 1);                                    \
      mbarrier_expect(full + 8 * stage_, STAGE_BYTES);                                         \
      for (int c_ = 0; c_ < BK / 16; ++c_) {                                                   \
        const uint to_ = tile0 + stage_ * STAGE_BYTES;                                         \
        const int k_ = ahead_.block * BK + 16 * c_;                                            \
        copy_strips(to_ + c_ * CHUNK_A, slot, ACROSS_A, M, BM, ahead_.origin.s0, k_, full + 8 * stage_); \
        copy_strips(to_ + BLOCK_A + c_ * CHUNK_B, slot + 16, ACROSS_B, N, BN, ahead_.origin.s1, k_, \
                    full + 8 * stage_);                                                        \
      }                                                                                        \
    }                                                                                          \
  } while (0)
  for (int lead = 0; lead < STAGES - 1; ++lead)
    if (id == 32 * (lead % SUB_GROUPS)) FILL(lead);

  const int g = id % 32 / 4, t = id % 4;
  const int slice = sub_group / SLICE_GROUPS;
  const int row = sub_group % SLICE_GROUPS / SG_COLUMNS * SGM, column = sub_group % SG_COLUMNS * SGN;
  __local const uchar *from_a = tiles + slice * SLICE_STEPS / 2 * CHUNK_A + row * 128;
  __local const uchar *from_b = tiles + BLOCK_A + slice * SLICE_STEPS / 2 * CHUNK_B + column * 128;
  const int place_a = PLACE_A(g, t), place_b = PLACE_B(g, t);
  uint read = 0; /* the barrier of the stage that was read last */
  for (; now.tile < all_tiles; now = tile_begin(now.tile + groups, work)) {
    double acc[ACCS]; /* of strips i and j: fragment h's d[e] at ((i STRIPS_B + j) 2 + h) 4 + e */
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;
    /* Of A a whole step, of B a strip: read while the ones before are multiplied. */
    double fa[2][STRIPS_A][4], fb[2][4];
#define READ_A(to, step)                                                                        \
  do {                                                                                          \
    UNROLL for (int i_ = 0; i_ < STRIPS_A; ++i_)                                     \
      LOAD_STRIP_A((to)[i_], from_a + stage * STAGE_BYTES + (step) / 2 * CHUNK_A + i_ * STRIP, place_a, (step) % 2); \
  } while (0)
#define READ_B(to, step, j) \
  LOAD_STRIP_B(to, from_b + stage * STAGE_BYTES + (step) / 2 * CHUNK_B + (j) * STRIP, place_b, (step) % 2)
    while (now.block < now.end) {
      mbarrier_wait(full + 8 * stage, phase);
      /* The stage before is released only here: an assembler was seen to move arrivals above the
       * multiplications that they follow, but not above a wait. */
      if (read && id % 32 == 0) mbarrier_arrive(read);
      read = empty + 8 * stage;
      READ_A(fa[0], 0);
      READ_B(fb[0], 0, 0);
      UNROLL for (int step = 0; step < SLICE_STEPS; ++step) {
        if (step == SLICE_STEPS / 2 && id == 32 * (now.block % SUB_GROUPS)) FILL(STAGES - 1);
        if (step + 1 < SLICE_STEPS) READ_A(fa[(step + 1) % 2], step + 1);
        UNROLL for (int j = 0; j < STRIPS_B; ++j) {
          const int n = step * STRIPS_B + j;
          if (n + 1 < SLICE_STEPS * STRIPS_B) READ_B(fb[(n + 1) % 2], (n + 1) / STRIPS_B, (n + 1) % STRIPS_B);
          UNROLL for (int i = 0; i < STRIPS_A; ++i) {
            double *d = acc + (i * STRIPS_B + j) * 8;
            mma_double(d, fa[step % 2][i], fb[n % 2][0], fb[n % 2][2]);
            mma_double(d + 4, fa[step % 2][i], fb[n % 2][1], fb[n % 2][3]);
          }
        }
      }
      ++now.block;
      if (++stage == STAGES) {
        stage = 0;
        phase ^= 1;
      }
    }
#if SLICES > 1
    sum_slices(acc, sums, slice, id % (32 * SLICE_GROUPS));
    if (slice) continue;
#endif
#if SPLIT_K
    const int all = work.tiles_m * work.tiles_n, share = now.tile / all;
    __global double *to = partial + ((z * all + now.tile - share * all) * shares + share) * (BM * BN);
#endif
    UNROLL for (int i = 0; i < STRIPS_A; ++i)
      UNROLL for (int r = 0; r < 4 * STRIPS_B; ++r) {
        const int j = r / 4, h = r / 2 % 2, e = r % 2;
        const int m = row + 16 * i + ROW_OF(g) + h;
        const int n = column + 16 * j + PAIR_OF(t, e);
        const double *d = acc + (i * STRIPS_B + j) * 8;
        const double pair[2] = {d[4 * PAIR_FRAGMENT(e, 0) + PAIR_ELEMENT(h, e, 0)],
                                d[4 * PAIR_FRAGMENT(e, 1) + PAIR_ELEMENT(h, e, 1)]};
#if SPLIT_K
        *(__global double2 *)(to + m * BN + n) = (double2)(pair[0], pair[1]);
#else
        STORE_PAIR(now.origin.s0 + m, now.origin.s1 + n, pair);
#endif
      }
  }
}
