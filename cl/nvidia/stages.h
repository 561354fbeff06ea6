/* stages: a ring of stages in local memory that the copy engine fills (ptx_map.h).
 *
 *     full[s]   barrier that completes when the copies into stage s have landed
 *     empty[s]  barrier that completes when every sub-group that reads stage s has released it
 *
 *     fill:  wait for empty[s], announce the bytes, start the copies          s = 0, 1, .. STAGES - 1, 0, 1, ..
 *     read:  wait for full[s], multiply, release s                            the same
 *
 * Macros: STAGES, 2 or more.
 * Technique: the mbarriers of NVIDIA's PTX manual; CUTLASS's pipelines for sm_90 have the same two barriers a stage.
 */
#include "nvidia/ptx_map.h"

#ifndef STAGES
#error "stages.h needs STAGES"
#endif

/* A position in the ring. `phase` is the parity of the lap: 0 in the first. */
typedef struct { int stage; uint phase; } ring_t;

/* The position `steps` stages further on. */
INLINE ring_t advanced(ring_t ring, const int steps)
{
  ring.stage += steps;
  ring.phase ^= (uint)(ring.stage / STAGES) & 1;
  ring.stage %= STAGES;
  return ring;
}

/* The same for fewer steps than STAGES, without a division. */
INLINE ring_t ahead_by(const ring_t ring, const int steps)
{
  const int over = ring.stage + steps >= STAGES;
  return (ring_t){ring.stage + steps - over * STAGES, ring.phase ^ over};
}

/* Addresses in local memory: stage 0, full[0], empty[0]. */
typedef struct { uint tiles, full, empty; } stages_t;

INLINE stages_t stages_in(__local uchar *tiles, __local ulong *bars)
{
  const uint full = local_address(bars);
  return (stages_t){local_address(tiles), full, full + 8 * STAGES};
}

/* Initializes the barriers. One work-item calls this before the work-group's barrier. `announcers`: how many
 * work-items announce copies into a stage; `readers`: how many sub-groups read it. */
INLINE void begin_stages(const stages_t stages, const int announcers, const int readers)
{
  for (int s = 0; s < STAGES; ++s) {
    mbarrier_init(stages.full + 8 * s, announcers);
    mbarrier_init(stages.empty + 8 * s, CLUSTER * readers);
  }
  mbarrier_fence();
}

INLINE void wait_until_full(const stages_t stages, const ring_t ring)
{
  mbarrier_wait(stages.full + 8 * ring.stage, ring.phase);
}

/* Waits until the stage is empty and announces the bytes of its copies. Returns the barrier that they complete. */
INLINE uint begin_filling(const stages_t stages, const ring_t ring, const uint bytes)
{
  const uint bar = stages.full + 8 * ring.stage;
  mbarrier_wait(stages.empty + 8 * ring.stage, ring.phase ^ 1);
  mbarrier_expect(bar, bytes);
  return bar;
}

/* Releases a stage. All work-items of a sub-group that has read it call this. */
INLINE void release(const stages_t stages, const int stage)
{
  arrive_at_members(stages.empty + 8 * stage);
}
