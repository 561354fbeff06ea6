/* mma_double_bulk: out = A B in float64 on the matrix units of sm_90, from tiles that the copy engine brings.
 *
 *                  BN                 STAGES blocks of K are in flight (stages.h)
 *             +-----+-----+
 *    BK       |  B  |     |           in the middle of each block one sub-group, in turn, starts copying the block
 *    +----+   +-----+-----+           that goes into the stage read before
 *    |    |   | SGM |     |
 * BM | A  |   | SGN |     |           work-group g computes tiles g, g + groups, ...; the next tile's copies run
 *    +----+   +-----+-----+           while one is stored
 *    |    |   |     |     |
 *    +----+   +-----+-----+
 *
 * SLICES: the sub-groups form that many sets, which divide each block's K and add their sums in local memory.
 * SPLIT_K 1: the K of each tile is cut into `split_k` ranges (work_pieces.h). Partial sums go to `partial`, and split_k.cl
 * adds them.
 *
 * A block of an operand lies in local memory as BK / 16 groups of BM / 16 (B: BN / 16) strips (strips.h).
 *
 * Macros: BM BN SGM SGN, multiples of 16; BK, a multiple of 16 SLICES; STAGES, 2 or more; SPLIT_K 0, 1; GROUP
 * (tile_order.h); ELEMENT float64 (operands.h); OUT_VECTOR (fragment.h); TRANS_A TRANS_B: how operands are stored, after
 * packing. There are 4 or 8 sub-groups.
 * Preconditions: each operand and each row of it begins on a multiple of 16 bytes.
 * Technique: mma, tensor maps and mbarriers as in NVIDIA's PTX manual.
 */
#include "include/gemm.h"
#include "include/partial_sums.h"
#include "nvidia/fragment.h"
#include "nvidia/stages.h"
#include "nvidia/strips.h"
#include "nvidia/work_pieces.h"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(SLICES)
#error "mma_double_bulk.cl needs BM BN BK SLICES"
#endif
#define SLICE_STEPS (BK / 8 / SLICES)
#define CHUNK_A (BM * 128) /* the strips of 16 of K */
#define CHUNK_B (BN * 128)
#define BLOCK_A (CHUNK_A * (BK / 16))
#define STAGE_BYTES (BLOCK_A + CHUNK_B * (BK / 16))
#define SG_COLUMNS (BN / SGN)
#define SLICE_GROUPS (BM / SGM * SG_COLUMNS)
#define SUB_GROUPS (SLICE_GROUPS * SLICES)
#define WORK_ITEMS (32 * SUB_GROUPS)
#define STRIPS_A (SGM / 16)
#define STRIPS_B (SGN / 16)

/* Ranges of all tiles. Without split-K `split_k` is 1. */
INLINE int ranges_of(const work_t work) { return work.tiles * work.split_k; }

/* A position of a work-group in its work: a block of K of a range of a tile, numbered as in work_pieces.h. `end`: one past
 * the last block of the range. After the last range, `number` is ranges_of(work) or more. */
typedef struct { int number, block, end; int2 origin; } place_t;

/* Ranges are of as many blocks as fit, the last of fewer. (By piece_at, without a division where there is no split-K, ptxas 13.0
 * takes 7 to 24 registers more.) */
INLINE place_t tile_begin(const int number, const work_t work)
{
  const int range = number / work.tiles, blocks = (work.steps + work.split_k - 1) / work.split_k;
  place_t place;
  place.number = number;
  place.origin = tile_at(number - range * work.tiles, work.tiles_m, work.tiles_n) * (int2)(BM, BN);
  place.block = range * blocks;
  place.end = min(place.block + blocks, work.steps);
  return place;
}

/* The position `blocks` further on. */
INLINE place_t further(place_t place, const int blocks, const work_t work)
{
  place.block += blocks;
  while (place.block >= place.end && place.number < ranges_of(work)) {
    const int left = place.block - place.end;
    place = tile_begin(place.number + (int)get_num_groups(0), work);
    place.block += left;
  }
  return place;
}

/* What a work-item needs to fill stages. `maps`: of A and B; `rows` of A, `columns` of B. */
typedef struct { __global const ulong *maps; int rows, columns; work_t work; stages_t stages; } filler_t;

/* Starts the copies of the block that is `lead` (< STAGES) further on, if there is one, once its stage is empty. */
INLINE void fill(const filler_t filler, const place_t now, const ring_t ring, const int lead)
{
  const place_t ahead = further(now, lead, filler.work);
  const ring_t to = ahead_by(ring, lead);
  if (ahead.number >= ranges_of(filler.work)) return;
  const uint bar = begin_filling(filler.stages, to, STAGE_BYTES);
  for (int c = 0; c < BK / 16; ++c) {
    const uint at = filler.stages.tiles + to.stage * STAGE_BYTES;
    const int k = ahead.block * BK + 16 * c;
    copy_strips(at + c * CHUNK_A, filler.maps, ACROSS_A, filler.rows, BM, ahead.origin.s0, k, bar);
    copy_strips(
        at + BLOCK_A + c * CHUNK_B, filler.maps + 16, ACROSS_B, filler.columns, BN, ahead.origin.s1, k, bar);
  }
}

/* What a work-item multiplies: where it reads in strips of stage 0; its sub-group's first row and column, and slice. */
typedef struct { __local const uchar *from_a, *from_b; int place_a, place_b, row, column, slice; } part_t;

INLINE part_t part_of(__local const uchar *tiles)
{
  const int id = get_local_id(0), sub_group = id / 32, g = id % 32 / 4, t = id % 4;
  const int slice = SLICES > 1 ? sub_group / SLICE_GROUPS : 0;
  const int row = sub_group % SLICE_GROUPS / SG_COLUMNS * SGM, column = sub_group % SG_COLUMNS * SGN;
  return (part_t){
      tiles + slice * SLICE_STEPS / 2 * CHUNK_A + row * 128,
      tiles + BLOCK_A + slice * SLICE_STEPS / 2 * CHUNK_B + column * 128, place_a(g, t), place_b(g, t), row, column, slice};
}

/* Reads A of all strips for one step of 8 of K. */
INLINE void read_a(double (*to)[4], const part_t part, const int stage, const int step)
{
  UNROLL for (int i = 0; i < STRIPS_A; ++i)
    load_strip_a(to[i], part.from_a + stage * STAGE_BYTES + step / 2 * CHUNK_A + i * STRIP, part.place_a, step % 2);
}

/* Reads B of one strip. n counts the strips of all steps. */
INLINE void read_b(double *to, const part_t part, const int stage, const int n)
{
  const int step = n / STRIPS_B, j = n % STRIPS_B;
  load_strip_b(to, part.from_b + stage * STAGE_BYTES + step / 2 * CHUNK_B + j * STRIP, part.place_b, step % 2);
}

/* Adds a block's products once it has landed. The next step of A and strip of B are read during multiplications.
 * `read`: empty[] of the stage that was read last, released only here: NVIDIA's assembler was seen to move arrivals
 * above the multiplications that they follow, but not above a wait. */
INLINE void multiply_block(
    double *acc, const part_t part, const filler_t filler, const place_t now, const ring_t ring, const uint read)
{
  double fa[2][STRIPS_A][4], fb[2][4];
  wait_until_full(filler.stages, ring);
  if (read && get_local_id(0) % 32 == 0) mbarrier_arrive(read);
  read_a(fa[0], part, ring.stage, 0);
  read_b(fb[0], part, ring.stage, 0);
  UNROLL for (int step = 0; step < SLICE_STEPS; ++step) {
    if (step == SLICE_STEPS / 2 && (int)get_local_id(0) == 32 * (now.block % SUB_GROUPS))
      fill(filler, now, ring, STAGES - 1);
    if (step + 1 < SLICE_STEPS) read_a(fa[(step + 1) % 2], part, ring.stage, step + 1);
    UNROLL for (int j = 0; j < STRIPS_B; ++j) {
      const int n = step * STRIPS_B + j;
      if (n + 1 < SLICE_STEPS * STRIPS_B) read_b(fb[(n + 1) % 2], part, ring.stage, n + 1);
      UNROLL for (int i = 0; i < STRIPS_A; ++i) {
        double *d = acc + (i * STRIPS_B + j) * 8;
        mma_double(d, fa[step % 2][i], fb[n % 2][0], fb[n % 2][2]);
        mma_double(d + 4, fa[step % 2][i], fb[n % 2][1], fb[n % 2][3]);
      }
    }
  }
}

#if SLICES > 1
/* Adds the sums of the other slices to those of slice 0. */
INLINE void sum_slices(double *acc, __local double *sums, const int slice)
{
  const int item = get_local_id(0) % (32 * SLICE_GROUPS);
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

/* Stores pairs of neighbouring columns in out, or in `partial` if K is split. */
INLINE void store_part(
    const double *acc, const part_t part, const place_t now, const work_t work, __global double *partial, RESULT_ARGS)
{
#if SPLIT_K
  const int range = now.number / work.tiles;
  partial += partial_at(now.number - range * work.tiles, work.tiles, range, work.split_k, BM * BN);
#endif
  const int g = get_local_id(0) % 32 / 4, t = get_local_id(0) % 4;
  UNROLL for (int i = 0; i < STRIPS_A; ++i)
    UNROLL for (int r = 0; r < 4 * STRIPS_B; ++r) {
      const int j = r / 4, h = r / 2 % 2, e = r % 2;
      const int m = part.row + 16 * i + ROW_OF(g) + h;
      const int n = part.column + 16 * j + PAIR_OF(t, e);
      const double *d = acc + (i * STRIPS_B + j) * 8;
      const double pair[2] = {d[4 * PAIR_FRAGMENT(e, 0) + PAIR_ELEMENT(h, e, 0)],
                              d[4 * PAIR_FRAGMENT(e, 1) + PAIR_ELEMENT(h, e, 1)]};
#if SPLIT_K
      *(__global double2 *)(partial + m * BN + n) = (double2)(pair[0], pair[1]);
#else
      store_pair(now.origin.s0 + m, now.origin.s1 + n, pair, RESULT);
#endif
    }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma_double_bulk(
    GEMM_ARGS, OPERAND_STRIDES, __global ulong *maps, __global double *partial, const int split_k)
{
  __local uchar tiles[STAGES * STAGE_BYTES] ALIGNED(1024);
  __local ulong bars[2 * STAGES];
  __local uint scratch[64] ALIGNED(128);
#if SLICES > 1
  __local double sums[ACCS * 32 * SLICE_GROUPS];
#endif
  const long z = BATCH_ENTRY;
  const int id = get_local_id(0), sub_group = id / 32;
  __global const uchar *from_a = operand_in_stack(a, a_offset, z, a_stride, BATCH_OFFSET(batch_offsets, 0), 8);
  __global const uchar *from_b = operand_in_stack(b, b_offset, z, b_stride, BATCH_OFFSET(batch_offsets, 1), 8);
  __global ulong *slot = maps + MAP_SLOT * (get_group_id(2) * get_num_groups(0) + get_group_id(0));
  const ulong about = sub_group < 2 ? word_about(slot, sub_group) : 0;
  const filler_t filler = {slot, M, N, work_of(M, N, K, BK, 1, 0, split_k), stages_in(tiles, bars)};
  place_t now = tile_begin(get_group_id(0), filler.work);
  GEMM_BEGIN;
  if (sub_group == 0) keep_map(slot, 0, scratch, strips_of(from_a, ACROSS_A, M, K, lda * 8, BM), 128, about);
  if (sub_group == 1) keep_map(slot, 1, scratch + 32, strips_of(from_b, ACROSS_B, N, K, ldb * 8, BN), 128, about);
  if (id == 64) begin_stages(filler.stages, 1, SUB_GROUPS);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (id % 32 == 0) {
    map_acquire(slot);
    map_acquire(slot + 16);
  }
  ring_t ring = {0, 0};
  for (int lead = 0; lead < STAGES - 1; ++lead)
    if (id == 32 * (lead % SUB_GROUPS)) fill(filler, now, ring, lead);

  const part_t part = part_of(tiles);
  uint read = 0; /* empty[] of the stage that was read last */
  for (; now.number < ranges_of(filler.work); now = tile_begin(now.number + (int)get_num_groups(0), filler.work)) {
    double acc[ACCS]; /* d[e] of fragment h of strips i, j is acc[((i STRIPS_B + j) 2 + h) 4 + e] */
    UNROLL for (int i = 0; i < ACCS; ++i) acc[i] = 0;
    for (; now.block < now.end; ++now.block) {
      multiply_block(acc, part, filler, now, ring, read);
      read = filler.stages.empty + 8 * ring.stage;
      ring = ahead_by(ring, 1);
    }
#if SLICES > 1
    sum_slices(acc, sums, part.slice);
#endif
    if (part.slice == 0) store_part(acc, part, now, filler.work, partial, RESULT);
  }
}
