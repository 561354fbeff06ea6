/* stages: a ring of stages in local memory, filled by the copy engine (ptx_map.h).
 *
 *     full[s]   completes when the copies of stage s have landed
 *     empty[s]  completes when every sub-group that reads it has given it back
 *
 * Macros: STAGES 2 and up.
 */
#include "include/attributes.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_map.h"

#ifndef STAGES
#error "stages.h needs STAGES"
#endif

/* A place in the ring; `phase` is the parity of the laps. */
typedef struct { int stage; uint phase; } ring_t;

INLINE ring_t advanced(ring_t ring, const int steps)
{
  ring.stage += steps;
  ring.phase ^= (uint)(ring.stage / STAGES) & 1;
  ring.stage %= STAGES;
  return ring;
}

/* The same of fewer steps than STAGES. */
INLINE ring_t ahead_by(const ring_t ring, const int steps)
{
  const int over = ring.stage + steps >= STAGES;
  return (ring_t){ring.stage + steps - over * STAGES, ring.phase ^ over};
}

/* Addresses in local memory: of stage 0, and of the barriers. */
typedef struct { uint tiles, full, empty; } stages_t;

INLINE stages_t stages_in(__local uchar *tiles, __local ulong *bars)
{
  const uint full = local_address(bars);
  return (stages_t){local_address(tiles), full, full + 8 * STAGES};
}

/* One work-item calls it, before the whole work-group meets: how many announce the copies of a stage, and how many
 * sub-groups read it. */
INLINE void begin_stages(const stages_t stages, const int announcers, const int readers)
{
  for (int s = 0; s < STAGES; ++s) {
    mbarrier_init(stages.full + 8 * s, announcers);
    mbarrier_init(stages.empty + 8 * s, readers);
  }
  mbarrier_fence();
}

INLINE void wait_until_full(const stages_t stages, const ring_t ring)
{
  mbarrier_wait(stages.full + 8 * ring.stage, ring.phase);
}

/* Before its copies are started: waits until the stage is empty, announces their bytes, returns their barrier. */
INLINE uint begin_filling(const stages_t stages, const ring_t ring, const uint bytes)
{
  const uint bar = stages.full + 8 * ring.stage;
  mbarrier_wait(stages.empty + 8 * ring.stage, ring.phase ^ 1);
  mbarrier_expect(bar, bytes);
  return bar;
}

/* By all work-items of a sub-group that has read it. */
INLINE void release(const stages_t stages, const int stage)
{
  if (get_local_id(0) % 32 == 0) mbarrier_arrive(stages.empty + 8 * stage);
}
