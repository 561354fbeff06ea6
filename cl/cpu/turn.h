/* turn: rows become columns in registers, for real numbers on CPU devices.
 *
 * A vector register has lanes of 128 bits, each of PER_LANE numbers. turn_lanes() transposes PER_LANE vectors, each lane
 * by itself, which takes one instruction a vector and step. With numbers of 64 bits:
 *
 *        lane 0  lane 1                lane 0  lane 1
 *   x0   a0 a1   c0 c1     ---->  x0   a0 b0   c0 d0
 *   x1   b0 b1   d0 d1            x1   a1 b1   c1 d1
 *
 * What must move between lanes is loaded from or stored to memory a lane at a time: here lane 0 from rows a and b of
 * a matrix, lane 1 from rows c and d.
 *
 * Macros: those of vectors.h. Defines PER_LANE; LANE, the numbers of a lane, aligned to one number only;
 * LANES_IN(f), the list f(0), f(PER_LANE), ... of all lanes of a vector.
 */
#include "cpu/vectors.h"

#if IS_LONG(ACC_TYPE)
#define PER_LANE 2
#else
#define PER_LANE 4
#endif
typedef CAT(REAL_NAME, PER_LANE) LANE ALIGNED(4);

#if LANES == PER_LANE
#define LANES_IN(f) f(0)
#elif LANES == 2 * PER_LANE
#define LANES_IN(f) f(0), f(PER_LANE)
#elif LANES == 4 * PER_LANE
#define LANES_IN(f) f(0), f(PER_LANE), f(2 * PER_LANE), f(3 * PER_LANE)
#endif

/* Numbers of two vectors in turn: the first ones of each lane, the last ones, or in pairs. */
#define MIXED(x, y, f) __builtin_shufflevector(x, y, LANES_IN(f))
#define FIRST(at) at, at + LANES
#define FIRST_TWO(at) FIRST(at), FIRST(at + 1)
#define LAST_TWO(at) FIRST(at + 2), FIRST(at + 3)
#define FIRST_PAIR(at) at, at + 1, at + LANES, at + 1 + LANES
#define LAST_PAIR(at) FIRST_PAIR(at + 2)
#define SECOND(at) FIRST(at + 1)

INLINE void turn_lanes(VEC x[PER_LANE])
{
#if PER_LANE == 2
  const VEC first = MIXED(x[0], x[1], FIRST);
  x[1] = MIXED(x[0], x[1], SECOND);
  x[0] = first;
#else
  const VEC p = MIXED(x[0], x[1], FIRST_TWO), q = MIXED(x[0], x[1], LAST_TWO);
  const VEC r = MIXED(x[2], x[3], FIRST_TWO), s = MIXED(x[2], x[3], LAST_TWO);
  x[0] = MIXED(p, r, FIRST_PAIR);
  x[1] = MIXED(p, r, LAST_PAIR);
  x[2] = MIXED(q, s, FIRST_PAIR);
  x[3] = MIXED(q, s, LAST_PAIR);
#endif
}
