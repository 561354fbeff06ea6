/* wgmma_lines: fragments of sums leave registers through local memory as lines, parts of rows of out.
 *
 * A store of fragments (fragment.h) meets eight rows with 16 bytes or less in each. Where these do not fill sectors of the
 * cache, each sector is written in parts. From a line a sub-group stores 128 neighbouring bytes at once (lines.h).
 *
 *     a quartet's chunk                                                fragments --> | line 0 |      each sub-group
 *     LINES 0, SWAPPED 0   64 lines of 256 bytes, rows                               | line 1 |      stores every
 *     LINES 1, SWAPPED 0   32 lines of 512 bytes, rows, of h = 0 or 1 (below)        |   ..   |      fourth line
 *     SWAPPED 1            64 lines of 256 bytes, columns of out^T, 64 rows long
 *
 * Work-item 4 g + t of a sub-group holds two rows, h = 0 and 1, ROW_STEP apart (fragment_rows.h).
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
#define BY_H (LINES && !SWAPPED)
#define CHUNK_LINES (BY_H ? 32 : 64)
#define LINE_BYTES (CHUNK_BYTES / CHUNK_LINES)
#define CHUNK_COLUMNS (SWAPPED ? 64 : LINE_BYTES / OUT_WIDTH) /* of a fragment */
#if LINES && OUT_WIDTH != 2 && OUT_WIDTH != 4
#error "wgmma_lines.h: results are of 2 or 4 bytes"
#endif
#if ELEMENT_BYTES == 1
typedef int2 sum_pair;
#else
typedef float2 sum_pair;
#endif

/* The line of row `row` of a fragment, the row of h = 0 that a work-item holds, and back. */
INLINE int line_of(const int row, const int h)
{
  return !BY_H ? row + ROW_STEP * h : ROW_STEP == 1 ? row / 2 : row / 16 * 8 + row % 8;
}
INLINE int row_of(const int line, const int h)
{
  return !BY_H ? line : ROW_STEP == 1 ? 2 * line + h : line / 8 * 16 + line % 8 + 8 * h;
}

/* 16 bytes c of a line lie at c ^ turned(line), so that work-items that leave sums at once meet different banks. */
INLINE int turned(const int line)
{
#if OUT_16
  return SWAPPED ? line / 2 % 4 : line % 8;
#elif LEFT_REGISTERS && ELEMENT_BYTES == 4
  return SWAPPED ? line / 2 % 4 : BY_H ? line % 2 * 2 + line / 8 % 2 * 4 : line / 2 % 2 * 2 + line / 16 % 2 * 4;
#elif SWAPPED || (LEFT_REGISTERS && !BY_H)
  return line / 2 % 4 * 2;
#else
  return line % 4 * 2;
#endif
}

/* Leaves `width` columns of a fragment at `to`, of which the first is j; of rows of h alone, if BY_H. The fragment's first
 * row is i. Results of 4 bytes are left as sums, others as results. */
INLINE void leave_chunk(
    const uint to, const sum_t *sums, const int width, const int h, const int i, const int j, RESULT_ARGS)
{
  const int row = fragment_row(get_local_id(0) % 128), column = (int)get_local_id(0) % 4 * 2;
  UNROLL for (int b = 0; b < CHUNK_COLUMNS / 8; ++b)
    UNROLL for (int e = 0; e < 2; ++e) {
      if (8 * b >= width || e != (BY_H ? h : e)) continue; /* a loop of another length would not be unrolled */
#if SWAPPED
      const int line = column + e, place = line * LINE_BYTES + (row * OUT_WIDTH ^ turned(line) * 16) + b * (8 * LINE_BYTES);
      const sum_t *v = sums + 4 * b + e;
#if OUT_16
      const uint pair = packed_results(
          i + row, j + 8 * b + line, v[0], i + row + ROW_STEP, j + 8 * b + line, v[2], RESULT);
      if (ROW_STEP == 1) {
        leave_word(to + place, pair);
      } else {
        leave_half(to + place, pair);
        leave_half(to + (place ^ 16), pair >> 16);
      }
#else
      const uint2 pair = as_uint2((sum_pair)(v[0], v[2]));
      if (ROW_STEP == 1) {
        leave_pair(to + place, pair);
      } else {
        leave_word(to + place, pair.s0);
        leave_word(to + (place ^ 32), pair.s1);
      }
#endif
#else
      const int line = line_of(row, e);
      const sum_t *v = sums + 4 * b + 2 * e;
#if OUT_16
      const int place = line * LINE_BYTES + (column * 2 ^ turned(line) * 16 ^ b * 16);
      leave_word(to + place, packed_pair(i + row + ROW_STEP * e, j + 8 * b + column, v, RESULT));
#else
      const int place = line * LINE_BYTES + (column * 4 ^ turned(line) * 16 ^ b * 32);
      leave_pair(to + place, as_uint2((sum_pair)(v[0], v[1])));
#endif
#endif
    }
}

#if LINES
#define LINE_LENGTH (SWAPPED ? 64 : BN < CHUNK_COLUMNS ? BN : CHUNK_COLUMNS)
#define LINE_LANES (LINE_LENGTH * OUT_WIDTH < 128 ? LINE_LENGTH * OUT_WIDTH / 4 : 32)

/* Stores what leave_chunk has left. */
INLINE void store_lines(
    __local const uchar *chunk, const int width, const int h, const int i, const int j, RESULT_ARGS)
{
  const int item = (int)get_local_id(0) % 128, lane = item % LINE_LANES;
  const int length = SWAPPED ? min(64, M - i) : min(width, N - j);
  _Pragma("unroll 2") for (int line = item / LINE_LANES; line < CHUNK_LINES; line += 128 / LINE_LANES) {
    const int row = i + (SWAPPED ? 0 : row_of(line, h)), column = j + (SWAPPED ? line : 0);
    const int count = (SWAPPED ? line < width && column < N : row < M) ? length : 0;
    const int turn = turned(line) * (16 / OUT_WIDTH);
    __global OUT_T *to = out + OUT_AT(row, column, ldo);
#if OUT_16
    __local const ushort *from = (__local const ushort *)(chunk + line * LINE_BYTES);
    store_line((__global ushort *)to, from, turn, count, LINE_LENGTH, LINE_LANES, OUT_VECTOR > 0, lane);
#else
    __local const sum_t *from = (__local const sum_t *)(chunk + line * LINE_BYTES);
    int e = lane - elements_past(to, 4, LINE_LANES);
    UNROLL for (int n = 0; n < STORES_OF_LINE(LINE_LENGTH, LINE_LANES); ++n, e += LINE_LANES) {
      const ACC_T sum = (ACC_T)from[(e & (LINE_BYTES / 4 - 1)) ^ turn]; /* without a branch */
      if (e >= 0 && e < count)
        STORE_OUT(to, e, finished_at(row + (SWAPPED ? e : 0), column + (SWAPPED ? 0 : e), sum, RESULT));
    }
#endif
  }
}

/* Stores a fragment whose first row and column are i and j. A quartet calls this. */
INLINE void store_in_lines(const stages_t stages, const int i, const int j, const sum_t *sums, RESULT_ARGS)
{
  const int quartet = get_local_id(0) / 128;
  const uint chunk = stages.tiles + STAGES * BLOCK_BYTES + (quartet - 1) * CHUNK_BYTES;
  UNROLL for (int first = 0; first < BN; first += CHUNK_COLUMNS)
    UNROLL for (int h = 0; h < (BY_H ? 2 : 1); ++h) {
      const int width = BN - first < CHUNK_COLUMNS ? BN - first : CHUNK_COLUMNS;
      meet(8 + quartet, QUARTET); /* the chunk before is stored */
      leave_chunk(chunk, sums + first / 2, width, h, i, j + first, RESULT);
      meet(8 + quartet, QUARTET);
      store_lines(local_at(chunk), width, h, i, j + first, RESULT);
    }
}
#endif
