/* Rows that are [packed weights | scales | biases] and begin at multiples of 16 bytes.
 *
 * Defines codes32(row, k, &low, &high): the 32 packed numbers from k on. Weight k is at bit k * QUANT_BITS of the row, read
 * as one little-endian number.
 * Macros: QUANT_BITS, 2, 3, 4, 6 or 8; GROUP_SIZE.
 */
#include "formats/bytes.h"

#define MASK ((1u << QUANT_BITS) - 1)
/* Codes of two words, or of four: of scalars, as Oclgrind makes no vector of vectors. */
#define EIGHT_TWICE(v, w) \
  ((uint16)(v, v, v, v, v, v, v, v, w, w, w, w, w, w, w, w) \
   >> (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7) * (uint)QUANT_BITS & MASK)
#define FOUR_TIMES_FOUR(v) \
  ((uint16)(v.x, v.x, v.x, v.x, v.y, v.y, v.y, v.y, v.z, v.z, v.z, v.z, v.w, v.w, v.w, v.w) \
   >> (uint16)(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3) * (uint)QUANT_BITS & MASK)

/* 96 bits as four numbers of 24. */
INLINE uint4 of_24_bits(__global const uint *w)
{
  return (uint4)(w[0], w[0] >> 24 | w[1] << 8, w[1] >> 16 | w[2] << 16, w[2] >> 8);
}

INLINE void codes32(bytes_t row, const int k, uint16 *low, uint16 *high)
{
  __global const uint *words = (__global const uint *)(row + k / 32 * (4 * QUANT_BITS));
#if QUANT_BITS == 2
  const uint2 w = *(__global const uint2 *)words;
  *low = EIGHT_TWICE(w.x, w.x >> 16);
  *high = EIGHT_TWICE(w.y, w.y >> 16);
#elif QUANT_BITS == 3
  const uint4 w = of_24_bits(words);
  *low = EIGHT_TWICE(w.x, w.y);
  *high = EIGHT_TWICE(w.z, w.w);
#elif QUANT_BITS == 4
  const uint4 w = *(__global const uint4 *)words;
  *low = EIGHT_TWICE(w.x, w.y);
  *high = EIGHT_TWICE(w.z, w.w);
#elif QUANT_BITS == 6
  const uint4 v = of_24_bits(words), w = of_24_bits(words + 3);
  *low = FOUR_TIMES_FOUR(v);
  *high = FOUR_TIMES_FOUR(w);
#else
  *low = CONVERTED(uint16, as_uchar16(*(__global const uint4 *)words));
  *high = CONVERTED(uint16, as_uchar16(*(__global const uint4 *)(words + 4)));
#endif
}

#if QUANT_BITS == 4
#define CODES_GROUP GROUP_SIZE
#define NIBBLES_IN EVEN_AND_ODD
#define NIBBLES_APART 16
INLINE int nibbles_at(const int k) { return (uint)k / 2; }
#include "formats/nibbles.h"
#endif
