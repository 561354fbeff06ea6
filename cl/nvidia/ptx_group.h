/* ptx_group: what the work-items of a sub-group, and quartets, do together (NVIDIA, sm_80 and later), as inline PTX. */
#include "include/attributes.h"

#define SUB_GROUP 32

/* The maximum, the minimum and the sum over a sub-group's work-items. */
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

/* The value of a sub-group's first work-item. The compiler then knows that it is the same for all of them. */
INLINE int first_ones(const int value)
{
  int first;
  asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(first) : "r"(value));
  return first;
}

/* The work-items of a quartet wait for each other at named barrier `bar`, 1 to 15 (OpenCL's barrier is 0). */
INLINE void quartet_barrier(const int bar) { asm volatile("bar.sync %0, 128;" :: "r"(bar) : "memory"); }

/* The work-items of a sub-group wait for each other, and see what each has read and written. */
INLINE void sub_group_barrier(void) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

/* Named barriers of `items` work-items, 1 to 15. meet_of waits until all have arrived; announce_of arrives without
 * waiting. */
INLINE void meet_of(const int bar, const int items)
{
  asm volatile("bar.sync %0, %1;" :: "r"(bar), "r"(items) : "memory");
}
INLINE void announce_of(const int bar, const int items)
{
  asm volatile("bar.arrive %0, %1;" :: "r"(bar), "r"(items) : "memory");
}

/* The same of two quartets. */
INLINE void meet(const int bar) { asm volatile("bar.sync %0, 256;" :: "r"(bar) : "memory"); }
INLINE void announce(const int bar) { asm volatile("bar.arrive %0, 256;" :: "r"(bar) : "memory"); }

/* Of three quartets, which begin with 168 registers for each work-item, one gives registers to the others. */
INLINE void fewer_registers(void) { asm volatile("//@sm_90a setmaxnreg.dec.sync.aligned.u32 56;" ::: "memory"); }
INLINE void more_registers(void) { asm volatile("//@sm_90a setmaxnreg.inc.sync.aligned.u32 224;" ::: "memory"); }
