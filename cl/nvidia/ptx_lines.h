/* ptx_lines: what wgmma_drain.h needs of sm_90a, as inline PTX. Addresses are those of ptx_copy.h. */
#include "include/attributes.h"

/* Stores two words in local memory; loads four. */
INLINE void leave_pair(const uint to, const uint2 words)
{
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" :: "r"(to), "r"(words.s0), "r"(words.s1) : "memory");
}
INLINE uint4 load_four(const uint from)
{
  uint4 w;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.s0), "=r"(w.s1), "=r"(w.s2), "=r"(w.s3) : "r"(from) : "memory");
  return w;
}

/* Orders this work-item's accesses to local memory before copies by the copy engine that are started later. */
INLINE void fill_fence(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Of three quartets, which begin with 168 registers for each work-item, one gives registers to the others. */
INLINE void fewer_registers(void) { asm volatile("//@sm_90a setmaxnreg.dec.sync.aligned.u32 56;" ::: "memory"); }
INLINE void more_registers(void) { asm volatile("//@sm_90a setmaxnreg.inc.sync.aligned.u32 224;" ::: "memory"); }
