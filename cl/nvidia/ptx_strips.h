/* Blocks of float64 operands, brought by the copy engine (sm_90) as strips: 2,048 bytes of local memory
 * for 16 rows of A or columns of B by 16 of K, lines of 128 bytes, swizzled as ptx_map.h draws it.
 *
 *               one line                             one copy is a box of
 *   along K     16 of K of one row                   16 x rows           of a matrix
 *   across K    16 rows at one k                     16 x 16 x rows / 16 of layers that lie 128 bytes apart
 *
 * Rows come in whole strips then; where they do not (and the last layer would reach into the next row), a
 * copy brings one strip. Joined after ptx_map.h.
 */
#include "include/attributes.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_map.h"

#define STRIP 2048
#define MAP_FLOAT64 "9"

/* Whether one copy brings all strips. */
static inline bool in_layers(const int across, const int rows) { return across && rows % 16 == 0; }

/* Writes the map of an operand of `rows` rows of A (columns of B) and `depth` of K, lines `pitch` bytes
 * apart, of which a copy takes `extent` rows. As WRITE_MAP. */
#define WRITE_STRIP_MAP(map, scratch, base, across, rows, depth, pitch, extent)                       \
  do {                                                                                                \
    const uint draft_ = local_address(scratch);                                                       \
    const bool layers_ = in_layers(across, rows);                                                     \
    (scratch)[get_local_id(0) % 32] = 0;                                                              \
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");                                           \
    if (get_local_id(0) % 32 == 0) {                                                                  \
      MAP_64(draft_, "global_address.shared::cta.b1024.b64 [%0]", base);                              \
      MAP_CONSTANT(draft_, "rank", "2"); /* three dimensions */                                       \
      MAP_CONSTANT(draft_, "box_dim", "0, 16");                                                       \
      MAP_32(draft_, "box_dim.shared::cta.b1024.b32 [%0], 1", (across) ? 16 : (extent));              \
      MAP_32(draft_, "box_dim.shared::cta.b1024.b32 [%0], 2", layers_ ? (extent) / 16 : 1);           \
      MAP_32(draft_, "global_dim.shared::cta.b1024.b32 [%0], 0", layers_ ? 16 : (across) ? (rows) : (depth)); \
      MAP_32(draft_, "global_dim.shared::cta.b1024.b32 [%0], 1", (across) ? (depth) : (rows));        \
      MAP_32(draft_, "global_dim.shared::cta.b1024.b32 [%0], 2", layers_ ? (rows) / 16 : 1);          \
      MAP_64(draft_, "global_stride.shared::cta.b1024.b64 [%0], 0", pitch);                           \
      MAP_64(draft_, "global_stride.shared::cta.b1024.b64 [%0], 1", 128L);                            \
      MAP_CONSTANT(draft_, "element_stride", "0, 1");                                                 \
      MAP_CONSTANT(draft_, "element_stride", "1, 1");                                                 \
      MAP_CONSTANT(draft_, "element_stride", "2, 1");                                                 \
      MAP_CONSTANT(draft_, "elemtype", MAP_FLOAT64);                                                  \
      MAP_CONSTANT(draft_, "interleave_layout", "0");                                                 \
      MAP_CONSTANT(draft_, "swizzle_mode", "3"); /* over 128 bytes */                                 \
      MAP_CONSTANT(draft_, "fill_mode", "0");                                                         \
    }                                                                                                 \
    asm volatile("bar.warp.sync 0xffffffff;\n\t"                                                      \
                 "//@sm_90a tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic"            \
                 ".release.gpu.sync.aligned [%0], [%1], 128;"                                         \
                 :: "l"(map), "r"(draft_) : "memory");                                                \
  } while (0)

/* Map `n` of a slot (ptx_map.h) describes the operand after it. */
#define KEEP_STRIP_MAP(slot, n, scratch, base, across, rows, depth, pitch, extent)                    \
  do {                                                                                                \
    __global ulong *about_ = (slot) + 32 + 8 * (n);                                                   \
    const ulong wanted_[5] = {(ulong)(base), (ulong)(rows) << 32 | (uint)(depth), (ulong)(pitch),     \
                              (ulong)(extent) << 1 | (across), 1};                                    \
    if (!describes(about_, wanted_)) {                                                                \
      WRITE_STRIP_MAP((slot) + 16 * (n), scratch, base, across, rows, depth, pitch, extent);          \
      UNROLL for (int i_ = 0; i_ < 5; ++i_) about_[i_] = wanted_[i_];                      \
    }                                                                                                 \
  } while (0)

/* Asks for k .. k + 15 of `extent` rows from `row` on. */
static inline void copy_strips(
    const uint to, __global const ulong *map, const int across, const int rows, const int extent,
    const int row, const int k, const uint bar)
{
  if (!across) copy_box(to, map, k, row, 0, bar);
  else if (in_layers(across, rows)) copy_box(to, map, 0, k, row / 16, bar);
  else
    for (int i = 0; i < extent / 16; ++i) copy_box(to + i * STRIP, map, row + 16 * i, k, 0, bar);
}
