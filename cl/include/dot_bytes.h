/* dot_bytes: sums of the products of four bytes of two words; low_bytes: the lowest bytes of four words.
 *
 * dot_bytes has unsigned and signed bytes, dot_signed_bytes signed ones of both. NVIDIA's instructions are dp4a and prmt.
 * Elsewhere plain C, of which compilers make what they have; programs in OpenCL C 3.0 have dot_signed_bytes by
 * cl_khr_integer_dot_product.
 */
#include "include/attributes.h"

#ifdef __NV_CL_C_VERSION /* PTX, sm_61 on */
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
/* u_0 s_0 + .. + u_3 s_3 + sum, where u_0 and s_0 are the lowest bytes. */
INLINE int dot_bytes(const uint u, const int s, const int sum)
{
  return sum + (int)(u & 0xff) * (char)s + (int)(u >> 8 & 0xff) * (char)(s >> 8) + (int)(u >> 16 & 0xff) * (char)(s >> 16)
         + (int)(u >> 24) * (s >> 24);
}

INLINE uint dot_signed_bytes(const uint x, const uint y, const uint sum)
{
#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
  return sum + (uint)dot_4x8packed_ss_int(x, y);
#else
  return sum + (uint)((char)x * (char)y + (char)(x >> 8) * (char)(y >> 8) + (char)(x >> 16) * (char)(y >> 16)
                      + (char)(x >> 24) * (char)(y >> 24));
#endif
}

INLINE uint low_bytes(const uint x, const uint y, const uint z, const uint w)
{
  return (x & 0xff) | (y & 0xff) << 8 | (z & 0xff) << 16 | w << 24;
}
#endif
