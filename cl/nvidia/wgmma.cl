/* wgmma: out = A B on the matrix units of sm_90a, tiles filled by the copy engine.
 *
 *                        BN                quartet 0: FEEDERS work-items ask for A's copies in
 *                 +--------------+         turn, as many for B's; quartets 1 .. : multiply
 *      K: 128     | B            |
 *      bytes      +--------------+         STAGES blocks of K are in flight (wgmma_stages.h)
 *     +------+    +--------------+
 *  BM | A    |    | quartet 1    |
 *     |      |    | quartet 2    |
 *     +------+    +--------------+         work-group g computes units g, g + groups, ...
 *
 * Units and quartets are described in units.h, the sums of shares of K in shares.h. With ALTERNATE 1 a
 * quartet multiplies while the other one stores. Copies of the next unit run while one is stored. Each
 * work-group keeps the tensor maps of A and B, for each feeder, in its slots of `maps`. Products of a stack are
 * layers of the maps, or, where they do not lie at equal distances, each has work-groups of its own, in
 * dimension 2.
 *
 * With SWAPPED this computes out^T = B^T A^T, and its a is the caller's b. TF32's units take operands along K from
 * local memory, but the left one, A, from registers, too, where it may lie across K (LEFT_REGISTERS). So of the
 * caller's operands the one across K becomes A.
 *
 * Macros: BM a multiple of 64, BN = WGMMA_N, GROUP, FEEDERS 1, 2; ELEMENT_BYTES of what is multiplied; PACKED_A
 * PACKED_B 0, 1: multiply packed_a (M rows along K, `pitch` elements each) in place of a; those of the headers.
 * Operands lie on multiples of 16 bytes, and so does each of their rows.
 * Technique: NVIDIA's description of wgmma and of the tensor memory accelerator in the PTX manual.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_map.h"
#include "nvidia/ptx_wgmma.h"
#include "nvidia/ptx_group.h"
#include "nvidia/fragment.h"
#include "nvidia/units.h"
#include "nvidia/fragment_rows.h"
#include "nvidia/fragment_columns.h"
#include "nvidia/shares.h"
#include "nvidia/wgmma_stages.h"

#if !defined(BM) || !defined(BN) || !defined(GROUP) || !defined(ELEMENT_BYTES) || !defined(PACKED_A) || \
    !defined(PACKED_B)
#error "wgmma.cl needs BM BN GROUP ELEMENT_BYTES PACKED_A PACKED_B"
#endif
#define WORK_ITEMS (128 * (QUARTETS + 1))

#if SWAPPED
#define STORE_TILE(i, j, acc, blocks) STORE_FRAGMENT_COLUMNS(i, j, acc, blocks)
#else
#define STORE_TILE(i, j, acc, blocks) STORE_FRAGMENT_ROWS(i, ROW_STEP, j, acc, blocks)
#endif

#if LEFT_REGISTERS
/* Steps of 8 of K whose words of A are in registers, and by how many their loads are ahead of the instruction: it
 * waits for the unit to take its A, so that loads behind it come late. The largest tiles have no registers for
 * more than two, and two quartets, of which one multiplies meanwhile. */
#define LEFT_SETS (ACCS > 96 && WORK_ITEMS > 256 ? 2 : 4)
#define AHEAD (LEFT_SETS == 4)
/* A step of 8 of K: this work-item's words of A, all fragments. */
INLINE void load_left(uint *words, const uint place, const int step)
{
  UNROLL for (int f = 0; f < FRAGMENTS; ++f) {
    uint *w = words + 4 * f;
    load_pair(w, place + f * CHUNK + step * 1024);
    load_pair(w + 2, (place ^ 64) + f * CHUNK + step * 1024 + 512);
  }
}
#endif

/* Issues the products of a block. */
INLINE void multiply(wgmma_acc *acc, const uint tile_a, const uint tile_b)
{
  const ulong a = wgmma_tile(tile_a, CHUNK);
  const ulong b = wgmma_right(tile_b, CHUNK);
  UNROLL for (int step = 0; step < 4; ++step) {
    UNROLL for (int f = 0; f < FRAGMENTS; ++f)
      wgmma(acc + f * WGMMA_ACC, a + f * (CHUNK / 16) + step * WGMMA_STEP_A, b + step * WGMMA_STEP_B, 1);
  }
}

/* What is multiplied; packed_* are only read where PACKED_* is 1. */
#define PACKED_ARGS __global const uchar *packed_a, __global const uchar *packed_b, const long pitch
#define SOURCE_A (PACKED_A ? PACKED_AT(packed_a, M) : (__global const uchar *)a)
#define SOURCE_B (PACKED_B ? PACKED_AT(packed_b, N) : (__global const uchar *)b)
#define PACKED_AT(p, rows) ((p) + z * (rows) * pitch * ELEMENT_BYTES)

/* Two quartets that have tiles of their own take turns in issuing multiplications: one stores while the
 * other multiplies, and the turn passes on with the tile. */
#define TURN_OF(quartet) (4 + (quartet)) /* a barrier */

/* This work-item's sums, into its quartet's slot. */
INLINE void leave_sums(__global wgmma_acc *slot, const wgmma_acc *acc)
{
  __global wgmma_acc4 *to = (__global wgmma_acc4 *)slot + get_local_id(0) % 128;
  UNROLL for (int i = 0; i < ACCS / 4; ++i)
    to[128 * i] = (wgmma_acc4)(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_wgmma(
    GEMM_ARGS, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int shares,
    const int stack, PACKED_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] ALIGNED(128);
  KEEP_STACK;
  GEMM_BEGIN_OF(SWAPPED, !SWAPPED);
  const long z = BATCH_ENTRY;
  const int id = get_local_id(0);
  const int quartet = id / 128;
  const work_t work = work_of(M, N, K, stack, whole, shares);
  const int units = units_of(work);
  const uint tile0 = local_address(tiles);
  const uint full = local_address(bars);
  const uint empty = full + 8 * STAGES;
  __global ulong *slot = maps + FEEDERS * MAP_SLOT * (get_group_id(2) * get_num_groups(0) + get_group_id(0));

  if (id == 64) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + 8 * s, 2);
      mbarrier_init(empty + 8 * s, 4 * OWNERS);
    }
    mbarrier_fence();
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (quartet == 0) {
    const int sub_group = first_ones(id / 32);
    const int feeder = sub_group / 2;
    if (feeder >= FEEDERS) return;
    if (sub_group % 2 == 0) FEED(A, SOURCE_A, WGMMA_ACROSS_A, M, PACKED_A ? pitch : lda, BM);
    if (sub_group % 2 == 1) FEED(B, SOURCE_B, WGMMA_ACROSS_B, N, PACKED_B ? pitch : ldb, BN);
    return;
  }

  ring_t ring = {0, 0};
  const int lane = id % 32;
  const int part_of_tile = ALTERNATE ? 0 : quartet - 1;
  bool mine = !ALTERNATE || quartet == 2;
#if LEFT_REGISTERS
  uint left[LEFT_SETS][4 * FRAGMENTS];
  const uint place = part_of_tile * CHUNK + fragment_place(id % 128);
#endif
#define RELEASE(s) \
  do { if (lane == 0) mbarrier_arrive(empty + 8 * (s)); } while (0)
  FOR_EACH_UNIT {
    const unit_t unit = unit_at(n_, work);
    if (ALTERNATE) mine = !mine;
    if (!mine) {
      ring = advanced(ring, unit.end - unit.first);
      continue;
    }
    wgmma_acc acc[ACCS];
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;
    int last = 0;
    if (ALTERNATE && n_ != (int)get_group_id(0)) meet(TURN_OF(quartet));
    for (int block = unit.first; block < unit.end; ++block) {
      const uint at = tile0 + ring.stage * STAGE_BYTES;
#if LEFT_REGISTERS
      const ulong right = wgmma_right(at + TILE_A, CHUNK);
      mbarrier_wait(full + 8 * ring.stage, ring.phase);
      if (AHEAD) {
        wgmma_wait_all_but(LEFT_SETS - 1);
        load_left(left[0], at + place, 0);
      }
      UNROLL for (int step = 0; step < 4; ++step) {
        const uint *words = left[step % LEFT_SETS];
        wgmma_wait_all_but(LEFT_SETS - 1 - AHEAD); /* what read the registers that are loaded now is done */
        if (step == LEFT_SETS - 1 - AHEAD && block > unit.first) RELEASE(last);
        if (step + AHEAD < 4) load_left(left[(step + AHEAD) % LEFT_SETS], at + place, step + AHEAD);
        wgmma_fence();
        UNROLL for (int f = 0; f < FRAGMENTS; ++f)
          wgmma_left(acc + f * WGMMA_ACC, words + 4 * f, right + step * WGMMA_STEP_B);
        wgmma_commit();
      }
#else
      mbarrier_wait(full + 8 * ring.stage, ring.phase);
      wgmma_fence();
      multiply(acc, at + part_of_tile * CHUNK, at + TILE_A);
      wgmma_commit();
      wgmma_wait_previous();
      if (block > unit.first) RELEASE(last);
#endif
      last = ring.stage;
      ring = advanced(ring, 1);
    }
    if (ALTERNATE && n_ + (int)get_num_groups(0) < units) announce(TURN_OF(3 - quartet));
    UNROLL for (int f = 0; f < FRAGMENTS; ++f) wgmma_wait(acc + f * WGMMA_ACC);
    if (unit.first < unit.end) RELEASE(last);
    if (SPLIT_K && unit.share >= 0) {
      leave_sums(partial + slot_at(z, unit.share, unit.tile - whole, part_of_tile, work), acc);
      continue;
    }
    MOVE_IN_STACK(unit.layer);
    const int row = unit.origin.s0 + part_of_tile * 64 + fragment_row(id % 128);
    UNROLL for (int f = 0; f < FRAGMENTS; ++f)
      STORE_TILE(row + 64 * f, unit.origin.s1, acc + f * WGMMA_ACC, BN / 8);
  }
}
