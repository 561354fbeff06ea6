/* What sub-groups and quartets of them do together on NVIDIA devices from sm_80 on, as inline PTX. */
#include "include/attributes.h"

#define SUB_GROUP 32

/* The largest, the least and the sum of what a sub-group's work-items have. */
INLINE uint most(const uint x)
{
  uint y;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}
INLINE int least(const int x)
{
  int y;
  asm volatile("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}
INLINE int total(const int x)
{
  int y;
  asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}

/* The value of a sub-group's first work-item, of which the compiler knows that all of them have it. */
INLINE int first_ones(const int value)
{
  int first;
  asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(first) : "r"(value));
  return first;
}

/* The quartet of four sub-groups in a row waits for each other at a barrier of its own, 1 to 15. */
INLINE void quartet_barrier(const int bar) { asm volatile("bar.sync %0, 128;" :: "r"(bar) : "memory"); }

/* Barriers 1 to 15 of two quartets, besides OpenCL's: one waits for what the other announces. */
INLINE void meet(const int bar) { asm volatile("bar.sync %0, 256;" :: "r"(bar) : "memory"); }
INLINE void announce(const int bar) { asm volatile("bar.arrive %0, 256;" :: "r"(bar) : "memory"); }
