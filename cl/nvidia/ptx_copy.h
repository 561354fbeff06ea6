/* ptx_copy: copies from global to local memory that pass through no register (cp.async, sm_80), as inline PTX.
 *
 * PTX instructions take a 32-bit address in local memory: local_address(p). TEXT(x) is the expansion of x as a string,
 * for the text of instructions.
 */
#include "include/attributes.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

INLINE uint local_address(__local const void *p) { return (uint)(size_t)p; }

/* Copies the first `bytes` (0 to 16) of 16 bytes and fills the rest with zeros. */
INLINE void copy_16(const uint to, __global const void *from, const int bytes)
{
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

/* The same for 8 bytes. */
INLINE void copy_8(const uint to, __global const void *from, const int bytes)
{
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
               :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Closes a group: the copies that this work-item has started since the last one. */
INLINE void copies_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until all groups but the last `pending` (a constant) have landed. */
#define copies_wait(pending) asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory")
