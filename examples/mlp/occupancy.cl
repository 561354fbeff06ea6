/* occupancy: how many work-groups of a launch run at once, found by the launch itself.
 *
 * OpenCL promises nothing to a work-group that waits for another one: the other one may not start before the first has
 * ended. But work-groups that have started all go on. So the work-groups of a launch hold a poll first:
 *
 *   open    a work-group that starts enters: it gets the next number
 *   closed  a work-group that starts now leaves at once; those that entered work together, and may wait for each other
 *
 * The poll closes when all have entered, or when PATIENCE looks in a row have seen nobody enter. The word `state`
 * counts the entries and has the mark CLOSED, so one atomic operation closes the poll and says how many are in it.
 *
 * Technique: Sorensen, Donaldson, Batty, Gopalakrishnan, Rakamaric: Portable inter-workgroup barrier synchronisation for
 * GPUs, OOPSLA 2016. They guard the poll by a mutex; one word needs none.
 *
 * Macros: LOCAL, the work-items of a work-group; PATIENCE.
 */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("unroll")
#define WORK_GROUP(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))
#if LOCAL > 1
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#else
#define SYNC()
#endif

/* Words of `meeting`, each on a cache line of its own. All but REFUSED are zero when a launch begins. */
#define REFUSED 0
#define STATE 32
#define FOUND 64
#define ARRIVALS 96
#define FLAGS 128
#define CLOSED 0x80000000u

/* This work-group's number. It is in the poll if the number is less than *groups, how many are in it. */
INLINE uint enter_poll(volatile __global uint *meeting, uint *groups)
{
  const uint mine = atomic_inc(meeting + STATE);
  if (mine & CLOSED) return mine;
  uint seen = mine + 1;
  for (int looks = 0; looks < PATIENCE && seen < get_num_groups(0); ++looks) {
    const uint now = meeting[STATE];
    if (now & CLOSED) break;
    if (now != seen) looks = 0;
    seen = now;
  }
  const uint entered = atomic_or(meeting + STATE, CLOSED);
  if (!(entered & CLOSED)) atomic_xchg(meeting + FOUND, entered);
  while ((*groups = atomic_add(meeting + FOUND, 0)) == 0) {}
  return mine;
}

/* The same for the work-items of a work-group. `shared`: two words of local memory. */
INLINE uint enter_poll_together(volatile __global uint *meeting, __local uint *shared, uint *groups)
{
  if (get_local_id(0) == 0) {
    uint found = 0;
    shared[0] = enter_poll(meeting, &found);
    shared[1] = found;
  }
  SYNC();
  *groups = shared[1];
  return shared[0];
}
