/* ptx_group: what the work-items of a sub-group, and quartets, do together (NVIDIA, sm_80 and later), as inline PTX. */
#include "include/attributes.h"

#define SUB_GROUP 32

/* The maximum, the minimum and the sum over a sub-group's work-items. */
#define OF_SUB_GROUP(name, type, operation)                                                    \
  INLINE type name(const type x)                                                               \
  {                                                                                            \
    type y;                                                                                    \
    asm volatile("redux.sync." operation " %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));           \
    return y;                                                                                  \
  }
OF_SUB_GROUP(most, uint, "max.u32")
OF_SUB_GROUP(least, int, "min.s32")
OF_SUB_GROUP(total, int, "add.s32")

/* Whether x holds for all work-items of a sub-group. */
INLINE bool all_items(const bool x)
{
  uint all;
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %1, 0;\n\tvote.sync.all.pred p, p, 0xffffffff;\n\t"
               "selp.u32 %0, 1, 0, p;\n\t}" : "=r"(all) : "r"((uint)x));
  return all;
}

/* The value of a sub-group's first work-item. The compiler then knows that it is the same for all of them. */
INLINE int first_ones(const int value)
{
  int first;
  asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(first) : "r"(value));
  return first;
}

/* The work-items of a sub-group wait for each other, and see what each has read and written. */
INLINE void sub_group_barrier(void) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

/* Named barriers, 1 to 15 (OpenCL's is 0), of `items` work-items, a constant. meet waits until all have arrived; announce
 * arrives without waiting. */
#define meet(bar, items) asm volatile("bar.sync %0, %1;" :: "r"(bar), "n"(items) : "memory")
#define announce(bar, items) asm volatile("bar.arrive %0, %1;" :: "r"(bar), "n"(items) : "memory")
#define QUARTET 128
#define TWO_QUARTETS 256

/* Of three quartets, which begin with 168 registers for each work-item, one gives registers to the others. */
INLINE void fewer_registers(void) { asm volatile("//@sm_90a setmaxnreg.dec.sync.aligned.u32 56;" ::: "memory"); }
INLINE void more_registers(void) { asm volatile("//@sm_90a setmaxnreg.inc.sync.aligned.u32 224;" ::: "memory"); }
