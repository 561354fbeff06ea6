/* async_copy: `cp.async` of NVIDIA devices of compute capability 8.0 or higher, as inline PTX. It copies from global to
 * local memory without registers.
 * Source: the PTX ISA manual, "Data Movement and Conversion Instructions".
 */
#include "include/types.h"

#define COPY_ASYNC(cache, bytes, target, from, size)                                         \
  asm volatile("cp.async." cache ".shared.global [%0], [%1], " bytes ", %2;" ::"r"(target), \
               "l"(from), "r"(size)                                                         \
               : "memory")

/* With a source size of 0, the copy reads nothing and writes zeros. */
INLINE void copy_async(__local ACC_T *to, __global const ACC_T *from, const int bytes, const bool valid)
{
  const uint target = (uint)(size_t)to;
  const int size = valid ? bytes : 0;
  if (bytes == 16)
    COPY_ASYNC("cg", "16", target, from, size);
  else if (bytes == 8)
    COPY_ASYNC("ca", "8", target, from, size);
  else
    COPY_ASYNC("ca", "4", target, from, size);
}

/* Closes a group: the copies that this work-item has started since the last one. */
INLINE void copies_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until all groups but the last `pending` (a constant) have landed. */
#define copies_wait(pending) asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory")
#define copies_wait_all() asm volatile("cp.async.wait_all;" ::: "memory")
