/* Copies of whole tiles by the copy engine (sm_90), as inline PTX: a tensor map in global memory
 * describes the matrix, one work-item asks for a box of it, a barrier in local memory (an mbarrier)
 * counts the bytes that have landed.
 *
 * A box is 128 bytes wide. Row r of it lands at 128 r, its 16-byte chunk c at chunk c ^ (r % 8), so
 * that neither rows nor columns of chunks meet the same memory banks:
 *
 *     row 0 | 0 1 2 3 4 5 6 7 |        row 2 | 2 3 0 1 6 7 4 5 |       eight rows: an atom of
 *     row 1 | 1 0 3 2 5 4 7 6 |        row 3 | 3 2 1 0 7 6 5 4 |       1,024 bytes, aligned to it
 *
 * Or it is 64 bytes wide: row r at 64 r, chunk c at chunk c ^ (r / 2 % 4), an atom of 512 bytes.
 *
 * A line that begins with //@sm_90a is a comment until pyclmm/ptx.py rewrites the program for the
 * target sm_90a, which the compiler of OpenCL C does not offer. Joined after ptx_copy.h.
 */
#include "include/attributes.h"
#include "nvidia/ptx_copy.h"

/* A barrier whose phase completes after so many arrivals and all bytes they announced. */
static inline void mbarrier_init(const uint bar, const uint arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(arrivals) : "memory");
}

/* After the last mbarrier_init: the copy engine sees the barriers. */
static inline void mbarrier_fence(void)
{
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async;" ::: "memory");
}

static inline void mbarrier_arrive(const uint bar)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}

/* Arrives and announces bytes. */
static inline void mbarrier_expect(const uint bar, const uint bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(bar), "r"(bytes) : "memory");
}

/* Waits for the end of the phase of this parity. Of a new barrier, the phase before the first
 * (parity 1) counts as ended. */
static inline void mbarrier_wait(const uint bar, const uint parity)
{
  uint done;
  do {
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  } while (!done);
}

/* Copies the box whose first element is column x of row y in a layer; zeros outside of the matrix. */
static inline void copy_box(
    const uint to, __global const ulong *map, const int x, const int y, const int layer, const uint bar)
{
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3, %4}], [%5];"
               :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(layer), "r"(bar) : "memory");
}

#define MAP_REPLACE "//@sm_90a tensormap.replace.tile."
#define MAP_CONSTANT(map, field, value) \
  asm volatile(MAP_REPLACE field ".shared::cta.b1024.b32 [%0], " value ";" :: "r"(map) : "memory")
#define MAP_32(map, field, value)                                         \
  asm volatile(MAP_REPLACE field ", %1;" :: "r"(map), "r"(value) : "memory")
#define MAP_64(map, field, value)                                         \
  asm volatile(MAP_REPLACE field ", %1;" :: "r"(map), "l"(value) : "memory")

/* Writes the tensor map of `layers` matrices of rows x columns elements, a row every `pitch` bytes, a
 * matrix every `layer_pitch`, read in boxes of box_rows x box_columns, which `width` says is of 128 or 64 bytes.
 * The element type's code is the constant `type`: 0 for 8 bits, 1 for 16 bits, 11 for float32 rounded to TF32.
 * All 32 work-items of one sub-group call it; `scratch` is 128 bytes of local memory, aligned to 128. */
#define BYTES_128 "3"
#define BYTES_64 "2"
#define WRITE_MAP(map, scratch, base, rows, columns, pitch, layers, layer_pitch, box_rows, box_columns, type, width) \
  do {                                                                                                \
    const uint draft_ = local_address(scratch);                                                       \
    (scratch)[get_local_id(0) % 32] = 0;                                                              \
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");                                           \
    if (get_local_id(0) % 32 == 0) {                                                                  \
      MAP_64(draft_, "global_address.shared::cta.b1024.b64 [%0]", base);                              \
      MAP_CONSTANT(draft_, "rank", "2"); /* three dimensions */                                       \
      MAP_32(draft_, "box_dim.shared::cta.b1024.b32 [%0], 0", box_columns);                           \
      MAP_32(draft_, "box_dim.shared::cta.b1024.b32 [%0], 1", box_rows);                              \
      MAP_CONSTANT(draft_, "box_dim", "2, 1");                                                        \
      MAP_32(draft_, "global_dim.shared::cta.b1024.b32 [%0], 0", columns);                            \
      MAP_32(draft_, "global_dim.shared::cta.b1024.b32 [%0], 1", rows);                               \
      MAP_32(draft_, "global_dim.shared::cta.b1024.b32 [%0], 2", layers);                             \
      MAP_64(draft_, "global_stride.shared::cta.b1024.b64 [%0], 0", pitch);                           \
      MAP_64(draft_, "global_stride.shared::cta.b1024.b64 [%0], 1", layer_pitch);                     \
      MAP_CONSTANT(draft_, "element_stride", "0, 1");                                                 \
      MAP_CONSTANT(draft_, "element_stride", "1, 1");                                                 \
      MAP_CONSTANT(draft_, "element_stride", "2, 1");                                                 \
      MAP_CONSTANT(draft_, "elemtype", TEXT(type));                                                   \
      MAP_CONSTANT(draft_, "interleave_layout", "0");                                                 \
      MAP_CONSTANT(draft_, "swizzle_mode", width);                                                    \
      MAP_CONSTANT(draft_, "fill_mode", "0");                                                         \
    }                                                                                                 \
    asm volatile("bar.warp.sync 0xffffffff;\n\t"                                                      \
                 "//@sm_90a tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic"            \
                 ".release.gpu.sync.aligned [%0], [%1], 128;"                                         \
                 :: "l"(map), "r"(draft_) : "memory");                                                \
  } while (0)

/* Before the first copy by a map in global memory, by the work-item that asks for copies. */
static inline void map_acquire(__global const ulong *map)
{
  asm volatile("//@sm_90a fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
}

/* Begins to fetch a map by which copies may be asked for soon. */
static inline void map_prefetch(__global const ulong *map)
{
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

/* Map slots: a work-group keeps the maps of two operands from call to call, and behind them what each was
 * written for, which is looked at before it is written again: that costs 1.5 us. New slots are zero.
 *
 *     ulongs 0 .. 15: map 0    16 .. 31: map 1    32 .. 36: what map 0 describes    40 .. 44: map 1
 */
#define MAP_SLOT 48
static inline bool describes(__global const ulong *about, const ulong *wanted)
{
  bool same = true;
  UNROLL for (int i = 0; i < 5; ++i) same &= about[i] == wanted[i];
  return same;
}

/* Map `n` of a slot describes the matrix after it, and this sub-group has acquired it if it was written. Arguments as
 * WRITE_MAP's. */
#define KEEP_MAP(slot, n, scratch, base, rows, columns, pitch, layers, layer_pitch, box_rows, box_columns, type) \
  KEEP_MAP_OF(slot, n, scratch, base, rows, columns, pitch, layers, layer_pitch, box_rows, box_columns, type, BYTES_128)
#define KEEP_MAP_OF(slot, n, scratch, base, rows, columns, pitch, layers, layer_pitch, box_rows, box_columns, type, \
                    width)                                                                            \
  do {                                                                                                \
    __global ulong *about_ = (slot) + 32 + 8 * (n);                                                   \
    const ulong wanted_[5] = {                                                                        \
        (ulong)(base), (ulong)(rows) << 32 | (uint)(columns), (ulong)(pitch), (ulong)(layer_pitch),   \
        (ulong)(layers) << 32 | (uint)((type) << 24 | (box_rows) << 12 | (box_columns))};             \
    if (!describes(about_, wanted_)) {                                                                \
      WRITE_MAP((slot) + 16 * (n), scratch, base, rows, columns, pitch, layers, layer_pitch, box_rows, \
                box_columns, type, width);                                                            \
      map_acquire((slot) + 16 * (n));                                                                 \
      UNROLL for (int i_ = 0; i_ < 5; ++i_) about_[i_] = wanted_[i_];                      \
    }                                                                                                 \
  } while (0)
