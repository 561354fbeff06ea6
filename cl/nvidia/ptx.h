/* ptx: instructions that many kernels of matrix units use, as inline PTX: copies without registers (cp.async), accesses to local
 * memory by address, what sub-groups and quartets do together, pairs of 16-bit floats, matrices and bytes in registers (sm_80).
 *
 * A line that begins with //@sm_90a is a comment until opencl/compiler.py rewrites the program for the target sm_90a,
 * which the compiler of OpenCL C does not offer.
 *
 * PTX instructions take a 32-bit address in local memory: local_address(p); local_at is its inverse. TEXT(x) is the expansion
 * of x as a string, for the text of instructions.
 *
 * Technique: as in NVIDIA's PTX manual.
 */
#include "include/attributes.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

INLINE uint local_address(__local const void *p) { return (uint)(size_t)p; }
INLINE __local const uchar *local_at(const uint address) { return (__local const uchar *)(size_t)address; }

/* --- Copies from global to local memory ---
 *
 * If `wanted`, copies the first `bytes` of `size` bytes (a constant: 4, 8, 16) and fills the rest with zeros. Both ends
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

/* --- Local memory ---
 *
 * Copy engine and matrix units access local memory by another way (PTX: a proxy) than work-items and cp.async. After this
 * fence they see what this work-item has stored there, or what its copies, which it has waited for, have written (sm_90). */
INLINE void stores_fence(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Stores the low half of a word in local memory; a word; two; loads two; loads four. */
INLINE void leave_half(const uint to, const uint word)
{
  asm volatile("st.shared.u16 [%0], %1;" :: "r"(to), "h"((ushort)word) : "memory");
}
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

/* Loads four matrices of 8 rows x 16 bytes. The 32 work-items of a sub-group call this together. Work-item l gives the address of
 * row l % 8 of matrix l / 8. Of each matrix m it gets bytes 4 (l % 4) .. 4 (l % 4) + 3 of row l / 4, in w[m]. */
#define LOAD_MATRICES(name, how)                                                                 \
  INLINE void name(uint *w, const uint address)                                                  \
  {                                                                                              \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0,%1,%2,%3}, [%4];"          \
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(address) : "memory");    \
  }
LOAD_MATRICES(load_matrices, "")
LOAD_MATRICES(load_matrices_transposed, ".trans") /* each 8 x 8 matrix of 16-bit elements is transposed */

/* --- Sub-groups, quartets and work-groups --- */
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

/* The value of the work-item whose number differs in bit `distance`. */
INLINE uint exchanged(const uint value, const int distance)
{
  uint other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(other) : "r"(value), "r"(distance));
  return other;
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

/* A barrier of the work-group for local memory. Whether x holds for all of its work-items. */
INLINE bool all_of_group(const bool x)
{
  uint all;
  asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.and.pred q, 0, p; selp.u32 %0, 1, 0, q; }"
               : "=r"(all) : "r"((uint)x) : "memory");
  return all;
}

/* Orders this work-item's accesses to global memory for all work-groups. */
INLINE void device_fence(void) { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

/* --- Global memory: four words that nobody reads again; a line into the cache of all compute units --- */
INLINE void read_once(uint *words, __global const uchar *from)
{
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "l"(from));
}
INLINE void prefetch_line(__global const uchar *from) { asm volatile("prefetch.global.L2 [%0];" :: "l"(from)); }

/* --- Words. packed_float16(low, high): two floats as the halves of a word, rounded to nearest even. fused_float16(a, b, c):
 * a b + c of both halves of a word, rounded once. The same for bfloat16. */
#define OF_PAIRS(kind, name)                                                          \
  INLINE uint packed_##kind(const float low, const float high)                        \
  {                                                                                   \
    uint word;                                                                        \
    asm("cvt.rn." name ".f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));        \
    return word;                                                                      \
  }                                                                                   \
  INLINE uint fused_##kind(const uint a, const uint b, const uint c)                  \
  {                                                                                   \
    uint word;                                                                        \
    asm("fma.rn." name " %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(c));     \
    return word;                                                                      \
  }
OF_PAIRS(float16, "f16x2")
OF_PAIRS(bfloat16, "bf16x2")

/* Four of the eight bytes of x (0 to 3) and y (4 to 7): hexadecimal digit i of `which` chooses byte i of the result. From 8
 * on it is eight times the sign of byte digit - 8. */
INLINE uint chosen_bytes(const uint x, const uint y, const uint which)
{
  uint word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(x), "r"(y), "r"(which));
  return word;
}

/* The lesser, the greater of two words by halves, which have signs (sm_90). */
#define BY_HALVES(name, operation)                                                       \
  INLINE uint name(const uint x, const uint y)                                           \
  {                                                                                      \
    uint word;                                                                           \
    asm("//@sm_90a " operation " %0, %1, %2;" : "=r"(word) : "r"(x), "r"(y));            \
    return word;                                                                         \
  }
BY_HALVES(lesser_halves, "min.s16x2")
BY_HALVES(greater_halves, "max.s16x2")
