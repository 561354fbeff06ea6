/* wgmma_stages: the ring of stages in local memory that wgmma.cl multiplies from, and the work-items that fill it.
 *
 *     stage s:  | block of A, BM lines of 128 bytes | block of B, BN lines |     s + 1 ..
 *
 *     full[s]   completes when its copies have landed
 *     empty[s]  completes when every sub-group has multiplied it
 *
 * Macros: BM BN STAGES FEEDERS; ELEMENT_BYTES, MAP_TYPE; WGMMA_ACROSS_A WGMMA_ACROSS_B; those of units.h and ptx_map.h.
 */
#include "include/attributes.h"
#include "nvidia/ptx_map.h"
#include "nvidia/ptx_group.h"
#include "nvidia/units.h"

#if !defined(BM) || !defined(BN) || !defined(STAGES) || !defined(ELEMENT_BYTES) || !defined(MAP_TYPE) || \
    !defined(FEEDERS)
#error "wgmma_stages.h needs BM BN STAGES ELEMENT_BYTES MAP_TYPE FEEDERS"
#endif
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
static inline ring_t advanced(ring_t ring, const int blocks)
{
  ring.stage += blocks;
  ring.phase ^= (uint)(ring.stage / STAGES) & 1;
  ring.stage %= STAGES;
  return ring;
}

#define FOR_EACH_UNIT for (int n_ = get_group_id(0); n_ < units; n_ += get_num_groups(0))

/* Asks for every FEEDERS-th block of one operand that this work-group needs, from number `feeder` on: of `lines`
 * rows (columns of B), no more than `most`, across K in boxes of `box`; `which` 0: A, 1: B, whose blocks lie
 * behind A's.
 *
 * Work-groups that all share one row of tiles, or one column, start at different blocks: at the same time they
 * would all want the same lines from the cache. */
INLINE void feed(
    const int which, const int feeder, __global const ulong *map, const int layered, const int across, const int box,
    const int most, const int lines, const work_t work, const uint tile0, const uint full)
{
  const uint empty = full + 8 * STAGES;
  const int units = units_of(work);
  const int boxes = (lines + box - 1) / box;
  const uint bytes = (across ? boxes * box : lines) * 128;
  ring_t ring = {feeder, 0};
  int n = feeder; /* of this unit's blocks */
  FOR_EACH_UNIT {
    const unit_t unit = unit_at(n_, work);
    const int row = which ? unit.origin.s1 : unit.origin.s0;
    const int layer = layered ? unit.layer : 0;
    const int blocks = unit.end - unit.first;
    const int number = unit.origin.s0 / BM + unit.origin.s1 / BN; /* of the tile, in its row or column */
    const bool turned = min(work.tiles_m, work.tiles_n) == 1 && blocks;
    int k = (unit.first + n + (turned ? number % blocks : 0)) * BK;
    for (; n < blocks; n += FEEDERS) {
      if (k >= unit.end * BK) k -= blocks * BK;
      const uint to = tile0 + ring.stage * STAGE_BYTES + which * TILE_A;
      const uint bar = full + 8 * ring.stage;
      mbarrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
      mbarrier_expect(bar, bytes);
      if (!across) copy_box(to, map, k, row, layer, bar);
      UNROLL for (int i = 0; i < (across ? (most + box - 1) / box : 0); ++i)
        if (i == 0 || i < boxes) copy_box(to + i * box * 128, map, row + box * i, k, layer, bar);
      k += FEEDERS * BK;
      ring = advanced(ring, FEEDERS);
    }
    n -= blocks;
  }
}

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
    if (id % 32 == 0) { /* as a rule it is the map of the last call, so that it may be fetched while that is found out */ \
      map_acquire(slot_ + 16 * OPERAND_##which);                                                           \
      map_prefetch(slot_ + 16 * OPERAND_##which);                                                          \
    }                                                                                                      \
    KEEP_MAP_OF(slot_, OPERAND_##which, scratch + 32 * sub_group, source, (across) ? K : (length),         \
                (across) ? (length) : K, row_, layer_ ? stack : 1, layer_ ? layer_ : row_,                 \
                (across) ? BK : lines_, (across) ? BOX_##which : BK, MAP_TYPE, BOX_WIDTH_##which);         \
    if (id % 32 == 0)                                                                                      \
      feed(OPERAND_##which, feeder, slot_ + 16 * OPERAND_##which, layer_ != 0, across, BOX_##which, extent, lines_, \
           work, tile0, full);                                                                             \
  } while (0)
#define OPERAND_A 0
#define OPERAND_B 1
