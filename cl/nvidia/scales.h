/* scales: scales and biases of a range of K for wgmma_quantized.cl, in local memory behind the weights (runs.h).
 *
 * They are copied before the first step: later they would come as four bytes of each of 32 lines. Then all work-items ask once
 * whether the highest mode of weights.h serves all of them.
 *
 * Macros: those of runs.h.
 */
#include "nvidia/runs.h"
#include "nvidia/exponents.h"

/* Scales of a column, then its biases; an even number, so that both begin on words */
#define GROUPS ((STEPS * STEP / GROUP_SIZE + 1) / 2 * 2)
#define COLUMN_BYTES (2 * GROUPS * BYTES_OF(SCALE_ELEMENT) + 4)
#define SCALES_BYTES ((BN * COLUMN_BYTES + 15) / 16 * 16)
#define SCALES_AT (RUNS_AT + STAGES * RUNS_BYTES)

/* The scales and biases of a range of K, from k0 on: element e of column j. */
INLINE __local scale_bits *scale_at(__local uchar *memory, const int j, const int e)
{
  return (__local scale_bits *)(memory + SCALES_AT + j * COLUMN_BYTES) + e;
}

/* Starts to copy them, words of four bytes: of a column first those of the scales, then those of the biases. */
INLINE void copy_scales(
    const uint slots, __global const uchar *b, const long ldb, const int j0, const int N, const int k0, const int words, const int K)
{
  const int first = get_local_id(0) / 32;
  b += (long)(K / 8) * BITS + k0 / GROUP_SIZE * BYTES_OF(SCALE_ELEMENT);
  for (int w = OWN_LANE; w < 2 * words; w += 32) {
    const int bias = w >= words, word = 4 * (bias ? w - words : w);
    __global const uchar *from = b + bias * (K / GROUP_SIZE * BYTES_OF(SCALE_ELEMENT)) + word;
    const uint to = slots + SCALES_AT + first * COLUMN_BYTES + bias * (GROUPS * BYTES_OF(SCALE_ELEMENT)) + word;
    UNROLL for (int j = 0; j < BN; j += ITEMS / 32)
      copy_async(to + j * COLUMN_BYTES, from + min(j0 + first + j, N - 1) * ldb, 4, 4, BN % (ITEMS / 32) == 0 || first + j < BN);
  }
  copies_commit();
}

#if TOP_MODE
/* Whether the highest mode serves all groups of a work-item's share of the columns, of which `words` words are scales. */
INLINE bool all_top(__local uchar *memory, const int words)
{
  range_t range = no_range();
  for (int w = get_local_id(0) / BN; w < words; w += ITEMS / BN) {
    __local const uint *scales = (__local const uint *)scale_at(memory, get_local_id(0) % BN, 2 * w);
    widen(&range, chosen_bytes(scales[0], scales[GROUPS / 2], 0x5410));
    widen(&range, chosen_bytes(scales[0], scales[GROUPS / 2], 0x7632));
  }
  return top_serves_range(&range);
}
#endif
