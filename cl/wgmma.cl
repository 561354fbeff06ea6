/* wgmma: out = A B on the matrix units of sm_90a, tiles filled by the copy engine.
 *
 *                        BN                quartet 0: FEEDERS work-items ask for A's copies in
 *                 +--------------+         turn, as many for B's; quartets 1 .. : multiply
 *      K: 128     | B            |
 *      bytes      +--------------+         STAGES blocks of K are in flight; of stage s
 *     +------+    +--------------+           full[s]  completes when its copies have landed,
 *  BM | A    |    | quartet 1    |           empty[s] when every sub-group has multiplied it
 *     |      |    | quartet 2    |
 *     +------+    +--------------+         work-group g computes units g, g + groups, ...
 *
 * Units and quartets are described in units.h, the sums of shares of K in shares.h. With ALTERNATE 1 a
 * quartet multiplies while the other one stores. Copies of the next unit run while one is stored. Each work-group keeps the tensor maps of A and B, for each
 * feeder, in its slots of `maps`. Products of a stack are layers of the maps, or, where they do not lie at equal
 * distances, each has work-groups of its own, in dimension 2.
 *
 * With SWAPPED this computes out^T = B^T A^T, and its a is the caller's b. TF32's units take operands along K from
 * local memory, but the left one, A, from registers, too, where it may lie across K (LEFT_REGISTERS). So of the
 * caller's operands the one across K becomes A.
 *
 * Macros: BM a multiple of 64, BN = WGMMA_N, STAGES, GROUP, FEEDERS 1, 2; ELEMENT_BYTES of what is multiplied, its
 * MAP_TYPE (ptx_map.h); PACKED_A PACKED_B 0, 1: multiply packed_a (M rows along K, `pitch` elements
 * each) in place of a; those of the headers.
 * Operands lie on multiples of 16 bytes, and so does each of their rows.
 * Technique: NVIDIA's description of wgmma and of the tensor memory accelerator in the PTX manual.
 */
#if !defined(BM) || !defined(BN) || !defined(STAGES) || !defined(GROUP) || !defined(ELEMENT_BYTES) || \
    !defined(MAP_TYPE) || !defined(PACKED_A) || !defined(PACKED_B) || !defined(FEEDERS)
#error "wgmma.cl needs BM BN STAGES GROUP ELEMENT_BYTES MAP_TYPE PACKED_A PACKED_B FEEDERS"
#endif
#define WORK_ITEMS (128 * (QUARTETS + 1))
#define TILE_A (BM * 128)
#define TILE_B (BN * 128)
#define STAGE_BYTES (TILE_A + TILE_B)
#define CHUNK (64 * 128) /* 64 rows of A */
/* A box of an operand across K: BK of K by so many rows of A, columns of B. */
#define BOX_A BK
#define BOX_B (BN < BK ? BN : BK)
#define BOX_WIDTH_A BYTES_128
#if BN < BK && WGMMA_ACROSS_B
#define BOX_WIDTH_B BYTES_64
#else
#define BOX_WIDTH_B BYTES_128
#endif

/* A place in the ring of stages; `phase` is the parity of the laps. */
typedef struct { int stage; uint phase; } ring_t;
inline ring_t advanced(ring_t ring, const int blocks)
{
  ring.stage += blocks;
  ring.phase ^= (uint)(ring.stage / STAGES) & 1;
  ring.stage %= STAGES;
  return ring;
}

#if SWAPPED
#define STORE_TILE(i, j, acc, blocks) STORE_FRAGMENT_COLUMNS(i, j, acc, blocks)
#else
#define STORE_TILE(i, j, acc, blocks) STORE_FRAGMENT_ROWS(i, ROW_STEP, j, acc, blocks)
#endif
#define FOR_EACH_UNIT for (int n_ = get_group_id(0); n_ < units; n_ += get_num_groups(0))

/* Asks for every FEEDERS-th block of one operand that this work-group needs, from number `feeder` on: of `lines`
 * rows (columns of B), no more than `most`, across K in boxes of `box`; `which` 0: A, 1: B, whose blocks lie
 * behind A's.
 *
 * Work-groups that all share one row of tiles, or one column, start at different blocks: at the same time they
 * would all want the same lines from the cache. */
__attribute__((always_inline)) inline void feed(
    const int which, const int feeder, __global const ulong *map, const int layered, const int across, const int box,
    const int most, const int lines, const work_t work, const uint tile0, const uint full)
{
  const uint empty = full + 8 * STAGES;
  const int units = units_of(work);
  const int boxes = (lines + box - 1) / box;
  const uint bytes = (across ? boxes * box : lines) * 128;
  ring_t ring = {feeder, 0};
  int n = feeder; /* of this unit's blocks */
  map_acquire(map);
  FOR_EACH_UNIT {
    const unit_t unit = unit_at(n_, work);
    const int row = which ? unit.origin.s1 : unit.origin.s0;
    const int layer = layered ? unit.layer : 0;
    const int blocks = unit.end - unit.first;
    const bool turned = min(work.tiles_m, work.tiles_n) == 1 && blocks;
    int k = (unit.first + n + (turned ? unit.tile % blocks : 0)) * BK;
    for (; n < blocks; n += FEEDERS) {
      if (k >= unit.end * BK) k -= blocks * BK;
      const uint to = tile0 + ring.stage * STAGE_BYTES + which * TILE_A;
      const uint bar = full + 8 * ring.stage;
      mbarrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
      mbarrier_expect(bar, bytes);
      if (!across) copy_box(to, map, k, row, layer, bar);
      #pragma unroll
      for (int i = 0; i < (across ? (most + box - 1) / box : 0); ++i)
        if (i == 0 || i < boxes) copy_box(to + i * box * 128, map, row + box * i, k, layer, bar);
      k += FEEDERS * BK;
      ring = advanced(ring, FEEDERS);
    }
    n -= blocks;
  }
}

#if LEFT_REGISTERS
/* Steps of 8 of K whose words of A are in registers, and by how many their loads are ahead of the instruction: it
 * waits for the unit to take its A, so that loads behind it come late. The largest tiles have no registers for
 * more than two, and two quartets, of which one multiplies meanwhile. */
#define LEFT_SETS (ACCS > 96 && WORK_ITEMS > 256 ? 2 : 4)
#define AHEAD (LEFT_SETS == 4)
/* A step of 8 of K: this work-item's words of A, all fragments. */
__attribute__((always_inline)) inline void load_left(uint *words, const uint place, const int step)
{
  #pragma unroll
  for (int f = 0; f < FRAGMENTS; ++f) {
    uint *w = words + 4 * f;
    load_pair(w, place + f * CHUNK + step * 1024);
    load_pair(w + 2, (place ^ 64) + f * CHUNK + step * 1024 + 512);
  }
}
#endif

/* Issues the products of a block. */
__attribute__((always_inline)) inline void multiply(wgmma_acc *acc, const uint tile_a, const uint tile_b)
{
  const ulong a = wgmma_tile(tile_a, CHUNK);
  const ulong b = wgmma_right(tile_b, CHUNK);
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    #pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f)
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

/* From one product's operand to the next one's in a stack, in bytes. */
#if BATCHED
#define LAYER_PITCH(which) ((batch_offsets[4 + ((which) ^ SWAPPED)] - batch_offsets[(which) ^ SWAPPED]) * ELEMENT_BYTES)
#else
#define LAYER_PITCH(which) 0L
#endif

/* A sub-group of quartet 0 sees to operand `which`: `length` rows of A, columns of B, `ld` apart. */
#define FEED(which, source, across, length, ld, extent)                                                    \
  do {                                                                                                     \
    __global ulong *const slot_ = slot + MAP_SLOT * feeder;                                                \
    const int lines_ = min(extent, ((length) + 7) / 8 * 8); /* nothing is stored of what is beyond */      \
    const long row_ = (ld) * ELEMENT_BYTES;                                                                \
    const long layer_ = stack == 1 ? 0 : PACKED_##which ? (length) * row_ : LAYER_PITCH(OPERAND_##which); \
    KEEP_MAP_OF(slot_, OPERAND_##which, scratch + 32 * sub_group, source, (across) ? K : (length),         \
                (across) ? (length) : K, row_, layer_ ? stack : 1, layer_ ? layer_ : row_,                 \
                (across) ? BK : lines_, (across) ? BOX_##which : BK, MAP_TYPE, BOX_WIDTH_##which);         \
    if (id % 32 == 0)                                                                                      \
      feed(OPERAND_##which, feeder, slot_ + 16 * OPERAND_##which, layer_ != 0, across, BOX_##which, extent, lines_, \
           work, tile0, full);                                                                             \
  } while (0)
#define OPERAND_A 0
#define OPERAND_B 1

/* This work-item's sums, into its quartet's slot. */
__attribute__((always_inline)) inline void leave_sums(__global wgmma_acc *slot, const wgmma_acc *acc)
{
  __global wgmma_acc4 *to = (__global wgmma_acc4 *)slot + get_local_id(0) % 128;
  #pragma unroll
  for (int i = 0; i < ACCS / 4; ++i)
    to[128 * i] = (wgmma_acc4)(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void matmul_wgmma(
    GEMM_ARGS, __global ulong *maps, __global wgmma_acc *partial, const int whole, const int shares,
    const int stack, PACKED_ARGS)
{
  __local uchar tiles[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local ulong bars[2 * STAGES];
  __local uint scratch[64 * FEEDERS] __attribute__((aligned(128)));
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
    #pragma unroll
    for (int i = 0; i < ACCS; ++i) acc[i] = 0;
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
      #pragma unroll
      for (int step = 0; step < 4; ++step) {
        const uint *words = left[step % LEFT_SETS];
        wgmma_wait_all_but(LEFT_SETS - 1 - AHEAD); /* what read the registers that are loaded now is done */
        if (step == LEFT_SETS - 1 - AHEAD && block > unit.first) RELEASE(last);
        if (step + AHEAD < 4) load_left(left[(step + AHEAD) % LEFT_SETS], at + place, step + AHEAD);
        wgmma_fence();
        #pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f)
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
    #pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f) wgmma_wait(acc + f * WGMMA_ACC);
    if (unit.first < unit.end) RELEASE(last);
    if (SPLIT_K && unit.share >= 0) {
      leave_sums(partial + slot_at(z, unit.share, unit.tile - whole, part_of_tile, work), acc);
      continue;
    }
    MOVE_IN_STACK(unit.layer);
    const int row = unit.origin.s0 + part_of_tile * 64 + fragment_row(id % 128);
    #pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f)
      STORE_TILE(row + 64 * f, unit.origin.s1, acc + f * WGMMA_ACC, BN / 8);
  }
}
