/* pack: copies operands into the layout that matrix units need: along K, each row of A and each column of B on a
 * multiple of 16 bytes, however they are stored and aligned.
 *
 *   packed_a(m, k) at m * pitch + k            packed_b(k, n) at n * pitch + k
 *
 * One launch packs both operands. It takes tiles of LINES x LINES elements: tiles 0 .. tiles_a - 1 are A's, the next
 * tiles_b are B's. Work-group g packs tiles g, g + groups, ... A tile goes through local memory: it is read along the
 * operand's contiguous axis and written along K.
 *
 *      operand                  local memory           packed
 *   +-----------+             +-------------+      +-----------+
 *   | LINES x   |  ---------> | LINES x     | ---> | ---> K    |
 *   |     LINES |  along the  |   LINES + 1 |      | ---> K    |
 *   +-----------+  contiguous +-------------+      +-----------+
 *                  axis
 *
 * A line is a row of A or a column of B.
 *
 * Bytes that lie across K are moved by words of four (turn_tile): one byte at a time reaches a fifth of the memory's rate.
 *
 * Macros: PACK_T, an unsigned type of the elements' size; elements are moved as they are. LINES. TRANS_A TRANS_B (gemm.h).
 * Technique: the transpose through padded local memory of OpenCL and CUDA courses.
 */
#include "include/dot_bytes.h"
#include "include/gemm.h"

#if !defined(PACK_T) || !defined(LINES)
#error "pack.cl needs PACK_T LINES"
#endif
#define WORK_ITEMS 256
#define WORDS (LINES / 4) /* of a line of bytes */

/* Packs a whole tile of bytes that lie across K. `from`, its first byte, and `ld` are multiples of 4.
 *
 * Each step takes 4 x 4 bytes. Word w of a line is at place w ^ (line / 4) of the line in local memory: so the work-items
 * of a sub-group meet in no bank, neither when 32 neighbouring lines are written nor when a line is read. */
INLINE void turn_tile(
    __local uint *buffer, __global const uchar *from, const long ld, __global uchar *to, const long pitch)
{
  const int item = get_local_id(0);
  UNROLL for (int step = 0; step < WORDS * WORDS / WORK_ITEMS; ++step) {
    const int n = item + step * WORK_ITEMS;
    const int quad = n % WORDS, word = n / WORDS;
    uint x[4];
    UNROLL for (int i = 0; i < 4; ++i) x[i] = *(__global const uint *)(from + (4 * word + i) * ld + 4 * quad);
    UNROLL for (int i = 0; i < 4; ++i)
      buffer[(4 * quad + i) * WORDS + (word ^ quad)] =
          low_bytes(x[0] >> 8 * i, x[1] >> 8 * i, x[2] >> 8 * i, x[3] >> 8 * i);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int step = 0; step < LINES * WORDS / WORK_ITEMS; ++step) {
    const int n = item + step * WORK_ITEMS;
    const int line = n / WORDS, word = n % WORDS;
    *(__global uint *)(to + line * pitch + 4 * word) = buffer[line * WORDS + (word ^ line / 4)];
  }
}

/* Packs one tile of an operand of `lines` lines. `k_fast`: K is the contiguous axis of `from`. */
INLINE void pack_tile(
    __local PACK_T *buffer, __global const PACK_T *from, const long ld, const bool k_fast,
    __global PACK_T *to, const long pitch, const int lines, const int K, const int tile)
{
  const int tiles_k = (K + LINES - 1) / LINES;
  const int line0 = tile / tiles_k * LINES;
  const int k0 = tile % tiles_k * LINES;
  __global const PACK_T *first = from + k0 * ld + line0;
  if (sizeof(PACK_T) == 1 && !k_fast && line0 + LINES <= lines && k0 + LINES <= K && ((ulong)first | (ulong)ld) % 4 == 0) {
    turn_tile(
        (__local uint *)buffer, (__global const uchar *)first, ld, (__global uchar *)(to + line0 * pitch + k0), pitch);
    return;
  }
  for (int n = get_local_id(0); n < LINES * LINES; n += WORK_ITEMS) {
    const int fast = n % LINES;
    const int slow = n / LINES;
    const int line = line0 + (k_fast ? slow : fast);
    const int k = k0 + (k_fast ? fast : slow);
    if (line < lines && k < K)
      buffer[(line - line0) * (LINES + 1) + k - k0] = from[k_fast ? line * ld + k : k * ld + line];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int n = get_local_id(0); n < LINES * LINES; n += WORK_ITEMS) {
    const int line = line0 + n / LINES;
    const int k = k0 + n % LINES;
    if (line >= lines || k >= K) continue;
    const PACK_T x = buffer[n / LINES * (LINES + 1) + n % LINES];
    to[line * pitch + k] = x;
  }
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_pack(
    GEMM_ARGS, __global PACK_T *packed_a, __global PACK_T *packed_b, const long pitch, const int tiles_a,
    const int tiles_b)
{
  __local PACK_T buffer[LINES * (LINES + 1)] ALIGNED(8);
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  for (int tile = get_group_id(0); tile < tiles_a + tiles_b; tile += get_num_groups(0)) {
    if (tile < tiles_a)
      pack_tile(buffer, (__global const PACK_T *)a, lda, !TRANS_A, packed_a + z * M * pitch, pitch, M,
                K, tile);
    else
      pack_tile(buffer, (__global const PACK_T *)b, ldb, TRANS_B, packed_b + z * N * pitch, pitch, N,
                K, tile - tiles_a);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
