/* ptx_copy: copies from global to local memory that pass through no register (cp.async, sm_80), and accesses to local memory
 * by address, as inline PTX.
 *
 * PTX instructions take a 32-bit address in local memory: local_address(p). TEXT(x) is the expansion of x as a string,
 * for the text of instructions.
 */
#include "include/attributes.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

INLINE uint local_address(__local const void *p) { return (uint)(size_t)p; }

/* If `wanted`, copies the first `bytes` of `size` bytes (a constant: 4, 8, 16) and fills the rest with zeros. Both ends
 * are multiples of `size`. A branch around each copy would cost more than the predicate. */
#define COPY_ASYNC(cache, size)                                                                              \
  asm volatile("{ .reg .pred wanted; setp.ne.u32 wanted, %3, 0;"                                             \
               " @wanted cp.async." cache ".shared.global.L2::128B [%0], [%1], " size ", %2; }"              \
               :: "r"(to), "l"(from), "r"(bytes), "r"((uint)wanted) : "memory")
INLINE void copy_async(
    const uint to, __global const void *from, const int size, const int bytes, const bool wanted)
{
  if (size == 16) COPY_ASYNC("cg", "16");
  else if (size == 8) COPY_ASYNC("ca", "8");
  else COPY_ASYNC("ca", "4");
}

/* The same without a condition, and without loading a whole line into the cache. */
#define FILL_ASYNC(cache, size)                                                       \
  asm volatile("cp.async." cache ".shared.global [%0], [%1], " size ", %2;"           \
               :: "r"(to), "l"(from), "r"(bytes) : "memory")
INLINE void fill_async(const uint to, __global const void *from, const int size, const int bytes)
{
  if (size == 16) FILL_ASYNC("cg", "16");
  else if (size == 8) FILL_ASYNC("ca", "8");
  else FILL_ASYNC("ca", "4");
}

/* Closes a group: the copies that this work-item has started since the last one. */
INLINE void copies_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until all groups but the last `pending` (a constant) have landed. */
#define copies_wait(pending) asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory")

/* Copy engine and matrix units access local memory by another way (PTX: a proxy) than work-items and cp.async. After this
 * fence they see what this work-item has stored there, or what its copies, which it has waited for, have written (sm_90). */
INLINE void stores_fence(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Stores a word in local memory; stores two; loads two; loads four. */
INLINE void leave_word(const uint to, const uint word)
{
  asm volatile("st.shared.u32 [%0], %1;" :: "r"(to), "r"(word) : "memory");
}
INLINE void leave_pair(const uint to, const uint2 words)
{
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" :: "r"(to), "r"(words.s0), "r"(words.s1) : "memory");
}
INLINE void load_pair(uint *words, const uint from)
{
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(from) : "memory");
}
INLINE uint4 load_four(const uint from)
{
  uint4 w;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.s0), "=r"(w.s1), "=r"(w.s2), "=r"(w.s3) : "r"(from) : "memory");
  return w;
}
