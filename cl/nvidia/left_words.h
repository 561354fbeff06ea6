/* left_words: A of 4-byte elements that is stored across K goes through registers to wgmma (ptx_wgmma.h), in the order of
 * rows of fragment_rows.h.
 *
 * Macros: TRANS_A 1: A is stored across K; ELEMENT (elements.h).
 */
#include "nvidia/elements.h"
#include "nvidia/fragment_rows.h"
#include "nvidia/ptx_wgmma.h"
#include "nvidia/wgmma_stages.h"

#if LEFT_REGISTERS && ELEMENT_BYTES == 4
/* The byte where the rows of work-item w of quartet `part` lie at k = t. For k = t + 4 add 512 and flip the bit of 64; for
 * the next step of 8 of K add 1,024. */
INLINE uint left_place(const int part, const int w)
{
  const int row = fragment_row(w), t = w % 4;
  return part * ROWS_64 + row / 32 * 4096 + t * 128 + (row % 32 / 4 ^ t) * 16 + row % 4 * 4;
}

/* The words of fragment f for one step of 8 of K. */
INLINE void load_fragment(uint *words, const uint place, const int f, const int step)
{
  load_pair(words, place + f * ROWS_64 + step * 1024);
  load_pair(words + 2, (place ^ 64) + f * ROWS_64 + step * 1024 + 512);
}
#endif
