/* lines: a sub-group stores neighbours of one row of out from local memory. Where rows begin on no multiple of 16 bytes, the
 * work-items shift, so that each of their stores stays within 128 bytes of the cache, and all sectors but those at both ends
 * of the line are written at once. A sector that is written in parts takes several times as long (docs/kernels/matrix_units/journal.md).
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

/* The word of elements e and e + 1 of a line of `length`; of e beyond it another one. Both are even. There is no branch. */
INLINE uint word_of_line(__local const ushort *from, const int turn, const int e, const int length)
{
  const int at = e < 0 ? 0 : e > length - 2 ? length - 2 : e;
  return *(__local const uint *)(from + (at ^ turn));
}

/* Stores elements of 2 bytes. Of words that reach beyond the line's ends only the element within is stored. `length`: the most
 * that count can be; `lanes`: how many work-items store a line, of which this one is `lane`; `pairs` 1: `to` is a multiple of 4
 * bytes. All but count and lane are constants. `turn`: a multiple of 2. */
INLINE void store_line(
    __global ushort *to, __local const ushort *from, const int turn, const int count, const int length, const int lanes,
    const int pairs, const int lane)
{
  const int odd = pairs ? 0 : (int)((ulong)to / 2 % 2), end = lane ? count - 1 : 0;
  int e = 2 * lane - elements_past(to, 2, lanes);
  UNROLL for (int n = 0; n < STORES_OF_LINE(length, 2 * lanes); ++n, e += 2 * lanes) {
    uint word = word_of_line(from, turn, e - odd, length);
    if (!pairs) word = (uint)(((ulong)word_of_line(from, turn, e - odd + 2, length) << 32 | word) >> 16 * odd);
    if (e >= 0 && e + 1 < count) *(__global uint *)(to + e) = word;
  }
  if (lane < 2 && count > 0 && (lane ? (count + odd) % 2 : odd)) to[end] = from[end ^ turn];
}
