/* fused_stage: how this work-group reads a matrix that others wrote: from a copy in local memory (STAGE 1), or in place.
 *
 * A copy serves the product, which sums over inputs k, and later the update, which sums over pictures b. It is [k][b] in
 * vectors of four pictures. In row k the vectors change places by k, so that work-items with neighbouring k read from
 * all banks of local memory.
 *
 * Macros: STAGE; SWIZZLE, how many vectors change places, less 1; ASYNC 1: copies pass through no register (PTX, sm_80).
 */
#if STAGE
#define SEEN __local
#define SEEN_AT(k, b) ((k) * PICTURES + ((((b) / 4) ^ ((k) & SWIZZLE)) * 4) + (b) % 4)
#define READ(n, x, k, b) (*(const __local VECTOR(n) *)((x) + SEEN_AT(k, b)))

#if ASYNC
INLINE void copy_four(__local float *to, const __global float *from)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"((uint)(size_t)to), "l"(from) : "memory");
}
INLINE void finish_copies(void) { asm volatile("cp.async.wait_all;" : : : "memory"); }
#else
INLINE void copy_four(__local float *to, const __global float *from) { *(__local float4 *)to = LOAD(4, from); }
INLINE void finish_copies(void) {}
#endif

/* Copies `depth` rows of pictures. */
INLINE void stage(__local float *to, const __global float *from, const int depth)
{
  _Pragma("unroll 4") for (int at = get_local_id(0) * 4; at < depth * PICTURES; at += LOCAL * 4) {
    const int k = at / PICTURES, b = at % PICTURES;
    copy_four(to + SEEN_AT(k, b), from + at);
  }
  finish_copies();
}
#else
#define SEEN __global
#define READ(n, x, k, b) LOAD(n, (x) + (k) * PICTURES + (b))
#endif
