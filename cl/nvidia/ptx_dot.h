/* ptx_dot: the functions of include/dot_bytes.h by PTX, sm_61 on. NVIDIA_DOT is whether it is there. */
#include "include/attributes.h"

#ifdef __NV_CL_C_VERSION
#define NVIDIA_DOT 1
INLINE int dot_bytes(const uint u, const int s, const int sum)
{
  int result;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(u), "r"(s), "r"(sum));
  return result;
}

INLINE uint dot_signed_bytes(const uint x, const uint y, const uint sum)
{
  uint result;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "r"(sum));
  return result;
}

INLINE uint low_bytes(const uint x, const uint y, const uint z, const uint w)
{
  uint low, high, result;
  asm("prmt.b32 %0, %1, %2, 0x40;" : "=r"(low) : "r"(x), "r"(y));
  asm("prmt.b32 %0, %1, %2, 0x40;" : "=r"(high) : "r"(z), "r"(w));
  asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(result) : "r"(low), "r"(high));
  return result;
}
#else
#define NVIDIA_DOT 0
#endif
