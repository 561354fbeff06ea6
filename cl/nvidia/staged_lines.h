/* staged_lines: stores a work-group's tile of 16-bit results whose rows do not begin on multiples of 16 bytes.
 *
 * Fragments lie in local memory first, in out's type, so that work-items then store whole lines of 128 bytes of a row.
 * Without that, an access of a sub-group (fragment.h) would meet eight rows with 16 bytes or less in each.
 *
 *     fragments --> | row 0: BN elements | 16 bytes | row 1 ..        local memory
 *                    \__ LANES work-items, two elements each: words of 4 bytes of out, but for an odd first or last one
 *
 * The 16 bytes between rows let eight rows of four pairs meet 32 memory banks.
 *
 * Macros: those of fragment.h and mma_ring.h. Defines STAGED_LINES, 1 where out has such rows.
 */
#include "include/gemm.h"
#include "nvidia/fragment.h"
#include "nvidia/mma_ring.h"

#define STAGED_LINES (OUT_16 && OUT_VECTOR != 2)
#if STAGED_LINES
#define STAGED_LINE (BN + 8) /* elements */
#define LANES (BN < 64 ? BN / 2 : 32)
#if BM * STAGED_LINE * 2 > STAGES * STAGE_BYTES
#error "staged_lines.h needs the local memory of the stages"
#endif

/* Leaves a sub-group's fragments in local memory. `row`, `column`: their place in the tile; i, j: in out. */
INLINE void stage_fragments(
    __local uint *staged, const int row, const int column, const int i, const int j, const sum_t *acc, RESULT_ARGS)
{
  const int paired = (int)get_local_id(0) % 4 * 2, line = (int)get_local_id(0) % 32 / 4;
  UNROLL for (int h = 0; h < 2; ++h)
    UNROLL for (int b = 0; b < NT; ++b) {
      const int at = (row + line + 8 * h) * STAGED_LINE + column + 8 * b + paired;
      staged[at / 2] = packed_pair(i + line + 8 * h, j + 8 * b + paired, acc + 4 * b + 2 * h, RESULT);
    }
}

/* Stores the tile at `origin` of out. All work-items of the work-group call this after a barrier. */
INLINE void store_lines(
    __local const ushort *staged, const int2 origin, const int M, const int N, __global OUT_T *out, const long ldo)
{
  const int lane = (int)get_local_id(0) % LANES, count = min(BN, N - origin.s1);
  UNROLL for (int pass = 0; pass < BM; pass += WORK_ITEMS / LANES) {
    const int row = pass + (int)get_local_id(0) / LANES;
    __local const ushort *from = staged + row * STAGED_LINE;
    __global ushort *to = (__global ushort *)out + (origin.s0 + row) * ldo + origin.s1;
    const int odd = (int)((ulong)to / 2 % 2); /* the first word of 4 bytes begins at this element */
    const int length = origin.s0 + row < M ? count : 0;
    if (odd && lane == 0 && length) to[0] = from[0];
    UNROLL for (int first = 0; first < BN; first += 2 * LANES) {
      const int e = first + 2 * lane + odd;
      if (e + 1 < length) *(__global uint *)(to + e) = from[e] | (uint)from[e + 1] << 16;
      else if (e < length) to[e] = from[e];
    }
  }
}
#endif
