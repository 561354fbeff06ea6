/* Codes of 4 bits, two in a byte: how 64 of them, 32 bytes, are read on CPUs.
 *
 *   NIBBLES_IN       the low halves of ..., then their high halves, are
 *   HALVES_OF_RUNS   16 bytes: 32 weights in order
 *   PAIRS_OF_RUNS    32 bytes: 64 weights in order
 *   EVEN_AND_ODD     a byte: two weights in order
 *
 * Macros: NIBBLES_IN; NIBBLES_APART, bytes from the first 16 of these bytes to the last 16; CODES_GROUP. The format defines
 * nibbles_at(k) before, where in a row the codes of 64 weights from k on begin, k a multiple of 64.
 */
#include "formats/bytes.h"

#define HALVES_OF_RUNS 0
#define PAIRS_OF_RUNS 1
#define EVEN_AND_ODD 2
#define CODES_BITS 4
#define CODES_EVEN_ODD (NIBBLES_IN == EVEN_AND_ODD ? (CODES_GROUP == 32 ? 32 : 64) : 0)
#define RUNS_APART (NIBBLES_IN == HALVES_OF_RUNS || CODES_EVEN_ODD == 32) /* in codes64 a run's last codes follow its first */

/* Those of the first (run 0) or the last 32 of 64, whose bytes are at p: the first and the last 16 of them, or every second
 * one. `four` is 4; `keep` 15, or -1: only the low 4 bits count. Compilers do not know that, so they widen bytes once and
 * shift after it. */
INLINE void nibbles32(bytes_t p, const int run, const int four, const int keep, int16 *first, int16 *last)
{
#if NIBBLES_IN == PAIRS_OF_RUNS
  const int16 of_first = CONVERTED(int16, BYTES_16(p)), of_last = CONVERTED(int16, BYTES_16(p + NIBBLES_APART));
  *first = run ? of_first >> four : of_first & keep, *last = run ? of_last >> four : of_last & keep;
#else
  const int16 bytes = CONVERTED(int16, BYTES_16(p + run * NIBBLES_APART));
  *first = bytes & keep, *last = bytes >> four;
#endif
}

/* codes = the low halves of 32 bytes, then the high ones; of 16 bytes, then of the others if these are `apart`. */
INLINE void split_nibbles(const ushort16 bytes, const int apart, ushort16 *codes)
{
#if AVX512 /* has a shift of 16 bits by another number for each */
  typedef ushort ushorts_32 __attribute__((ext_vector_type(32)));
  const ushort8 none = 0, four = 4;
  const ushorts_32 twice = apart ? (ushorts_32)(bytes.lo, bytes.lo, bytes.hi, bytes.hi) : (ushorts_32)(bytes, bytes);
  const ushorts_32 by = apart ? (ushorts_32)(none, four, none, four) : (ushorts_32)(none, none, four, four);
  *(ushorts_32 *)codes = twice >> by & (ushort)0x0f0f;
#else
  const ushort16 low = bytes & (ushort)0x0f0f, high = bytes >> (ushort)4 & (ushort)0x0f0f;
  codes[0] = low, codes[1] = high;
  if (apart) codes[0].hi = high.lo, codes[1].lo = low.hi;
#endif
}

INLINE void codes64(bytes_t row, const int k, const int K, ushort16 *codes)
{
  bytes_t p = row + nibbles_at(k);
#if NIBBLES_APART == 16
  const ushort16 bytes = LOADED(ushort, 16, p);
#else /* Oclgrind makes no vector of vectors */
  ushort16 bytes = 0;
  bytes.lo = LOADED(ushort, 8, p), bytes.hi = LOADED(ushort, 8, p + NIBBLES_APART);
#endif
  split_nibbles(bytes, RUNS_APART, codes);
}
