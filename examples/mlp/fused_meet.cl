/* fused_meet: what work-groups give each other: loads that see the writes of others, and meetings.
 *
 * A meeting has two halves, so that work can stand between them: `arrive` publishes what this work-group has written,
 * `wait` ends when all work-groups of the poll (occupancy.cl) have arrived as often.
 *
 * Macros: COHERENT, MEET, LOCAL (fused.cl). Included by fused.cl, after Work.
 */

/* Reads past caches that do not see what other work-groups write. */
#if COHERENT == 2
INLINE float load_1(const __global float *p)
{
  float x;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
  return x;
}
INLINE float2 load_2(const __global float *p)
{
  float2 x;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(p) : "memory");
  return x;
}
INLINE float4 load_4(const __global float *p)
{
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(p) : "memory");
  return x;
}
#define LOAD(n, p) JOIN(load_, n)(p)
#elif COHERENT == 1
#define LOAD(n, p) (*(const volatile __global VECTOR(n) *)(p))
#else
#define LOAD(n, p) (*(const __global VECTOR(n) *)(p))
#endif

#include "fused_stage.cl"

/* Says that this work-group has written what others wait for. */
INLINE void arrive(Work *work)
{
  work->met += 1;
  SYNC();
  if (get_local_id(0) == 0) {
#if MEET == 1
    asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%0], 1;" : : "l"(work->meeting + ARRIVALS) : "memory");
#elif MEET == 2
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_xchg(work->meeting + FLAGS + work->group, work->met);
#else
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_inc(work->meeting + ARRIVALS);
#endif
  }
}

/* Waits until all work-groups have arrived as often as this one. */
INLINE void wait(Work *work)
{
#if MEET == 2
  for (uint g = get_local_id(0); g < work->groups; g += LOCAL)
    while (work->meeting[FLAGS + g] < work->met) {}
  mem_fence(CLK_GLOBAL_MEM_FENCE);
#else
  if (get_local_id(0) == 0) {
    const uint all = work->met * work->groups;
#if MEET == 1
    uint arrived;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(work->meeting + ARRIVALS) : "memory");
    } while (arrived < all);
#else
    while (work->meeting[ARRIVALS] < all) {}
    mem_fence(CLK_GLOBAL_MEM_FENCE);
#endif
  }
#endif
  SYNC();
#if LOCAL == 1
  atomic_add(work->meeting + ARRIVALS, 0); /* no compiler moves loads above it */
#endif
}
