/* lines: a sub-group stores neighbours of one row of out from local memory. Where rows begin on no multiple of 16 bytes, the
 * work-items shift, so that each of their stores stays within 128 bytes of the cache, and all sectors but those at both ends
 * of the line are written at once. A sector that is written in parts takes several times as long (docs/cuda.md).
 *
 *     from[e ^ turn], e = 0 .. count - 1          | 128 bytes | 128 bytes | ..     of global memory
 *                                                     [first store][second ..
 */
#include "include/attributes.h"

/* `to`, in elements of `nbytes`, from the last multiple of `lanes` words of 4 bytes. */
INLINE int elements_past(__global const void *to, const int nbytes, const int lanes)
{
  return (int)((ulong)to / nbytes % (4 / nbytes * lanes));
}

/* How many stores of `step` elements a line of `length` needs where the first may store only one of them. */
#define STORES_OF_LINE(length, step) (((length) + 2 * (step) - 2) / (step))

/* Stores elements of 2 bytes. `length`: the most that count can be; `lanes`: how many work-items store a line, of which this
 * one is `lane`. Both are constants. */
INLINE void store_line(
    __global ushort *to, __local const ushort *from, const int turn, const int count, const int length, const int lanes,
    const int lane)
{
  int e = 2 * lane - elements_past(to, 2, lanes);
  UNROLL for (int n = 0; n < STORES_OF_LINE(length, 2 * lanes); ++n, e += 2 * lanes) {
    if (e >= 0 && e + 1 < count) *(__global uint *)(to + e) = from[e ^ turn] | (uint)from[(e + 1) ^ turn] << 16;
    else if (e >= 0 && e < count) to[e] = from[e ^ turn];
    else if (e == -1 && count > 0) to[0] = from[turn];
  }
}
