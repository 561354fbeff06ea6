/* The scales of q4_k and q5_k: float16 d | float16 dmin | 12 bytes, of which those of the first four runs of 32 are in the
 * low 6 bits of bytes 0 to 7, scales before least values; the others have 4 bits in bytes 8 to 11, and two in the high bits
 * of bytes 0 to 7.
 */
#include "formats/bytes.h"

/* d scale and dmin least of a run. */
INLINE float2 k_scales(bytes_t block, const int run)
{
  bytes_t s = block + 4;
  const int j = run % 4;
  const int scale = run < 4 ? s[j] & 63 : (s[8 + j] & 15) | (s[j] >> 2 & 48);
  const int least = run < 4 ? s[4 + j] & 63 : s[8 + j] >> 4 | (s[4 + j] >> 2 & 48);
  return (float2)(HALF_AT(block) * (float)scale, HALF_AT(block + 2) * (float)least);
}
