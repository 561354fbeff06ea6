/* wgmma_lines: fragments of sums leave registers through local memory as lines, parts of rows of out.
 *
 * A store of fragments (fragment.h) meets eight rows with 16 bytes or less in each. Where these do not fill sectors of the
 * cache, each sector is written in parts. From a line a sub-group stores 128 neighbouring bytes at once.
 *
 *     chunk: 64 lines of 256 bytes, a quartet's own       fragments --> | line 0 |      4 sub-groups store every fourth line
 *            SWAPPED 0: a line is a row of 64                           | line 1 |
 *            SWAPPED 1: a column of the fragment, 64 rows               |   ..   |
 *
 * Macros: LINES 1: chunks lie behind the stages, and all results of wgmma.cl leave through them; 0: those that wgmma_drain.cl
 * leaves. SWAPPED BN (wgmma.cl); OUT_VECTOR (fragment.h); those of fragment_rows.h. Results are of 4 or 2 bytes.
 */
#include "include/gemm.h"
#include "nvidia/fragment.h"
#include "nvidia/fragment_rows.h"
#include "nvidia/lines.h"
#include "nvidia/wgmma_feeders.h"

#define CHUNK_BYTES (64 * 256)
#define CHUNK_COLUMNS (256 / OUT_WIDTH)
#define CHUNK_SUMS (CHUNK_COLUMNS / 2) /* of a work-item */
#define FRAGMENT_COLUMNS (SWAPPED ? 64 : CHUNK_COLUMNS) /* of a fragment, that a chunk holds at most */
#if LINES && OUT_WIDTH != 2 && OUT_WIDTH != 4
#error "wgmma_lines.h: results are of 2 or 4 bytes"
#endif

/* 16 bytes c of a line lie at c ^ turned(line), so that work-items that leave sums at once meet different banks. */
INLINE int turned(const int line)
{
#if OUT_16
  return SWAPPED ? line / 2 % 4 : line % 8;
#elif LEFT_REGISTERS && ELEMENT_BYTES == 4
  return SWAPPED ? line / 2 % 4 : line / 2 % 2 * 2 + line / 16 % 2 * 4;
#else
  return SWAPPED || LEFT_REGISTERS ? line / 2 % 4 * 2 : line % 4 * 2;
#endif
}

#if ELEMENT_BYTES == 1
typedef int2 sum_pair;
#else
typedef float2 sum_pair;
#endif

/* Leaves a chunk at `to`: of a fragment whose first row is i, `width` columns from j on. Results of 4 bytes are left as sums,
 * others as results. */
INLINE void leave_chunk(const uint to, const sum_t *sums, const int width, const int i, const int j, RESULT_ARGS)
{
  const int row = fragment_row(get_local_id(0) % 128), column = (int)get_local_id(0) % 4 * 2;
  UNROLL for (int b = 0; b < FRAGMENT_COLUMNS / 8; ++b)
    UNROLL for (int e = 0; e < 2; ++e) {
      if (8 * b >= width) continue; /* only so are the indices of sums constants */
#if SWAPPED
      const int line = column + e, place = line * 256 + (row * OUT_WIDTH ^ turned(line) * 16) + b * (8 * 256);
      const sum_t *v = sums + 4 * b + e;
#if OUT_16
      const uint pair = 
          packed_results(i + row, j + 8 * b + line, v[0], i + row + ROW_STEP, j + 8 * b + line, v[2], RESULT);
      if (ROW_STEP == 1) {
        leave_word(to + place, pair);
      } else {
        leave_half(to + place, pair);
        leave_half(to + (place ^ 16), pair >> 16);
      }
#elif LEFT_REGISTERS
      leave_pair(to + place, as_uint2((sum_pair)(v[0], v[2])));
#else
      leave_word(to + place, as_uint2((sum_pair)(v[0], v[2])).s0);
      leave_word(to + (place ^ 32), as_uint2((sum_pair)(v[0], v[2])).s1);
#endif
#elif OUT_16
      const int line = row + ROW_STEP * e, place = line * 256 + (column * 2 ^ turned(line) * 16 ^ b * 16);
      leave_word(to + place, packed_pair(i + line, j + 8 * b + column, sums + 4 * b + 2 * e, RESULT));
#else
      const int line = row + ROW_STEP * e, place = line * 256 + (column * 4 ^ turned(line) * 16 ^ b * 32);
      const sum_t *v = sums + 4 * b + 2 * e;
      leave_pair(to + place, as_uint2((sum_pair)(v[0], v[1])));
#endif
    }
}

#if LINES
#define LINE_LENGTH (SWAPPED ? 64 : BN < CHUNK_COLUMNS ? BN : CHUNK_COLUMNS)
#define LINE_LANES (LINE_LENGTH * OUT_WIDTH < 128 ? LINE_LENGTH * OUT_WIDTH / 4 : 32)

/* Stores a chunk of `width` columns. Its place in out is that of row i and column j of the fragment. */
INLINE void store_lines(__local const uchar *chunk, const int width, const int i, const int j, RESULT_ARGS)
{
  const int item = (int)get_local_id(0) % 128, lane = item % LINE_LANES;
  const int lines = min(SWAPPED ? width : 64, SWAPPED ? N - j : M - i);
  const int count = SWAPPED ? min(64, M - i) : min(width, N - j);
  for (int line = item / LINE_LANES; line < lines; line += 128 / LINE_LANES) {
    const int turn = turned(line) * (16 / OUT_WIDTH);
    __global OUT_T *to = out + OUT_AT(SWAPPED ? i : i + line, SWAPPED ? j + line : j, ldo);
#if OUT_16
    __local const ushort *from = (__local const ushort *)(chunk + line * 256);
    store_line((__global ushort *)to, from, turn, count, LINE_LENGTH, LINE_LANES, lane);
#else
    __local const sum_t *from = (__local const sum_t *)(chunk + line * 256);
    int e = lane - elements_past(to, 4, LINE_LANES);
    UNROLL for (int n = 0; n <= LINE_LENGTH / LINE_LANES; ++n, e += LINE_LANES) {
      const int row = SWAPPED ? i + e : i + line, column = SWAPPED ? j + line : j + e;
      if (e >= 0 && e < count) STORE_OUT(to, e, finished_at(row, column, (ACC_T)from[e ^ turn], RESULT));
    }
#endif
  }
}

/* Stores a fragment whose first row and column are i and j. A quartet calls this. */
INLINE void store_in_lines(const stages_t stages, const int i, const int j, const sum_t *sums, RESULT_ARGS)
{
  const int quartet = get_local_id(0) / 128;
  const uint chunk = stages.tiles + STAGES * BLOCK_BYTES + (quartet - 1) * CHUNK_BYTES;
  UNROLL for (int first = 0; first < BN; first += FRAGMENT_COLUMNS) {
    const int width = BN - first < FRAGMENT_COLUMNS ? BN - first : FRAGMENT_COLUMNS;
    meet(8 + quartet, QUARTET); /* the chunk before is stored */
    leave_chunk(chunk, sums + first / 2, width, i, j + first, RESULT);
    meet(8 + quartet, QUARTET);
    store_lines(local_at(chunk), width, i, j + first, RESULT);
  }
}
#endif
