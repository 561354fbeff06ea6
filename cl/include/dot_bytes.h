/* dot_bytes: the sum of the products of four unsigned and four signed bytes; low_bytes: the lowest bytes of four words.
 *
 * NVIDIA's instructions are dp4a and prmt. Elsewhere plain C, of which compilers make what they have.
 */
#include "include/attributes.h"
#include "nvidia/ptx_dot.h"

#if !NVIDIA_DOT
/* u_0 s_0 + .. + u_3 s_3 + sum, where u_0 and s_0 are the lowest bytes. */
INLINE int dot_bytes(const uint u, const int s, const int sum)
{
  return sum + (int)(u & 0xff) * (char)s + (int)(u >> 8 & 0xff) * (char)(s >> 8) + (int)(u >> 16 & 0xff) * (char)(s >> 16)
         + (int)(u >> 24) * (s >> 24);
}

INLINE uint low_bytes(const uint x, const uint y, const uint z, const uint w)
{
  return (x & 0xff) | (y & 0xff) << 8 | (z & 0xff) << 16 | w << 24;
}
#endif
