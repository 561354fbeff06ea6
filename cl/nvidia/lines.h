/* lines: stores neighbours of a row of out from a line in local memory, for results of 2 bytes in rows that may begin on no
 * multiple of 4.
 *
 *     from[e ^ turn], e = 0 .. count - 1  -->  one element, if to is no multiple of 4 bytes; words of 4 bytes; one element, if left
 */
#include "include/attributes.h"

/* `length`: the most that count can be; `lanes`: how many work-items store a line, of which this one is `lane`. Both are
 * constants. */
INLINE void store_line(
    __global ushort *to, __local const ushort *from, const int turn, const int count, const int length, const int lanes,
    const int lane)
{
  const int odd = (int)((ulong)to / 2 % 2);
  if (odd && lane == 0 && count > 0) to[0] = from[turn];
  UNROLL for (int first = 0; first < length; first += 2 * lanes) {
    const int e = first + 2 * lane + odd;
    if (e + 1 < count) *(__global uint *)(to + e) = from[e ^ turn] | (uint)from[(e + 1) ^ turn] << 16;
    else if (e < count) to[e] = from[e ^ turn];
  }
}
