/* probes: small kernels that show what a device does in a second (pyclmm/tools/probes.py times them).
 *
 *   nothing        an empty launch
 *   follow         work-item 0 reads next[0], next[next[0]], ..: each read waits for the one before
 *   read_all       reads n vectors of 16 bytes. IN_RUNS 0: neighbouring work-items read neighbouring vectors, as GPUs
 *                  like it; 1: each reads a run of its own, as CPUs do, in work-groups of one work-item
 *   read_local     reads a work-group's local memory again and again, 16 bytes at a time
 *   multiply_add   CHAINS multiply-adds that do not wait for each other, again and again
 *
 * A result is written only if it has a value that it never has, so that the compiler keeps the work.
 *
 * Macros: REAL, the type that multiply_add computes with; DOT_BYTES 1: it adds dot products of four bytes, and REAL is uint;
 * ITEMS, the work-group's size of read_local; IN_RUNS 0, 1.
 * Technique: none.
 */
#include "include/dot_bytes.h"

#if !defined(REAL) || !defined(ITEMS) || !defined(IN_RUNS) || !defined(DOT_BYTES)
#error "probes.cl needs REAL ITEMS IN_RUNS DOT_BYTES"
#endif
#if DOT_BYTES
#define ADD_PRODUCT(sum, a, b) dot_signed_bytes(sum, a, sum)
#else
#define ADD_PRODUCT(sum, a, b) ((sum) * (a) + (b))
#endif
#define CHAINS 8
#define LOCAL_VECTORS (4 * ITEMS)

__kernel void nothing(__global uint *out, const uint never)
{
  if (get_global_id(0) == never) out[0] = 0;
}

__kernel void follow(__global uint *out, const uint never, __global const uint *next, const uint steps)
{
  uint at = 0;
  for (uint i = 0; i < steps; ++i) at = next[at];
  if (at == never) out[0] = at;
}

__kernel void read_all(__global uint *out, const uint never, __global const uint4 *from, const uint n)
{
  const uint items = get_global_size(0), share = (n + items - 1) / items;
  const uint step = IN_RUNS ? 1 : items;
  const uint end = IN_RUNS ? min(n, (uint)(get_global_id(0) + 1) * share) : n;
  uint4 sum = 0;
  uint i = IN_RUNS ? get_global_id(0) * share : get_global_id(0);
  for (; i + 3 * step < end; i += 4 * step) sum += from[i] ^ from[i + step] ^ from[i + 2 * step] ^ from[i + 3 * step];
  for (; i < end; i += step) sum += from[i];
  if ((sum.s0 ^ sum.s1 ^ sum.s2 ^ sum.s3) == never) out[0] = 0;
}

__kernel WORK_GROUP(ITEMS, 1, 1) void read_local(__global uint *out, const uint never, const uint steps)
{
  __local uint4 held[LOCAL_VECTORS];
  for (uint i = get_local_id(0); i < LOCAL_VECTORS; i += ITEMS) held[i] = (uint4)(i);
  barrier(CLK_LOCAL_MEM_FENCE);
  uint4 sum = 0;
  for (uint i = 0; i < steps; ++i) {
    UNROLL for (uint j = 0; j < 4; ++j) sum ^= held[(get_local_id(0) + i + j * ITEMS) % LOCAL_VECTORS];
  }
  if ((sum.s0 ^ sum.s1 ^ sum.s2 ^ sum.s3) == never) out[0] = 0;
}

__kernel void multiply_add(__global uint *out, const uint never, const uint steps)
{
  REAL sums[CHAINS];
  const REAL a = (REAL)(get_global_id(0) % 7 + 1), b = (REAL)(never);
  UNROLL for (int c = 0; c < CHAINS; ++c) sums[c] = (REAL)(c);
  for (uint i = 0; i < steps; ++i) {
    UNROLL for (int c = 0; c < CHAINS; ++c) sums[c] = ADD_PRODUCT(sums[c], a, b);
  }
  REAL sum = sums[0];
  UNROLL for (int c = 1; c < CHAINS; ++c) sum = sum * a + sums[c];
  union { REAL value; uint words[sizeof(REAL) / 4]; } bits;
  bits.value = sum;
  if (bits.words[0] == never) out[0] = 0;
}
