/* ptx_dot: dot_bytes of include/dot_bytes.h by PTX, sm_61 on. NVIDIA_DOT is whether it is there. */
#include "include/attributes.h"

#ifdef __NV_CL_C_VERSION
#define NVIDIA_DOT 1
INLINE int dot_bytes(const uint u, const int s, const int sum)
{
  int result;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(u), "r"(s), "r"(sum));
  return result;
}
#else
#define NVIDIA_DOT 0
#endif
