/* q8_0: d q. float16 d | 32 signed bytes. */
#include "formats/bytes.h"

INLINE void weights32(bytes_t row, const int k, const int K, float16 *low, float16 *high)
{
  bytes_t block = row + k / 32 * 34;
  const float d = HALF_AT(block);
  *low = d * CONVERTED(float16, as_char16(BYTES_16(block + 2)));
  *high = d * CONVERTED(float16, as_char16(BYTES_16(block + 18)));
}
