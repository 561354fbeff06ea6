/* left_registers: an A of 4 or 1 bytes that is stored across K goes through registers to wgmma (ptx_wgmma.h), in the order of
 * rows of fragment_rows.h.
 *
 * Bytes lie in local memory as rows of k, with 64 or 128 rows of A beside each other, in boxes of ptx_map.h. ldmatrix.trans
 * moves 16-bit elements, here two neighbouring rows of A at one k. Work-item 4 g + t receives these pairs at four
 * values of k; two permutations of bytes make the words of rows 2 g and 2 g + 1:
 *
 *     X: k + 0, k + 1      Y: k + 2, k + 3       each (row 2 g, row 2 g + 1)      k = 4 t
 *
 * For t >= 2 X and Y are exchanged, so that the eight lines that are read at once differ in k % 8, hence in their banks.
 *
 * Macros: BM; TRANS_A 1: A is stored across K; ELEMENT (elements.h).
 */
#include "nvidia/fragment_rows.h"
#include "nvidia/ptx_matrices.h"
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
#elif LEFT_REGISTERS && ELEMENT_BYTES == 1
#define LEFT_LINE (BM < 128 ? 64 : 128) /* bytes of a row of a box */
#define STEP_LEFT (32 * LEFT_LINE)

/* The byte that work-item w of quartet `part` addresses in step 0. */
INLINE uint left_place(const int part, const int w)
{
  const int i = w % 8, j = w / 8 % 4;
  const int k = 16 * (j / 2) + 4 * (i / 2) + i % 2 + 2 * ((j ^ i / 4) & 1);
  const int chunk = (LEFT_LINE == 128 ? part % 2 * 4 : 0) + w / 32;
  const int turned = LEFT_LINE == 128 ? chunk ^ k % 8 : chunk ^ k / 2 % 4;
  return part / 2 * (128 * 128) + k * LEFT_LINE + turned * 16;
}

/* The words of fragment f for one step of 32 of K. */
INLINE void load_fragment(uint *words, const uint place, const int f, const int step)
{
  const bool exchanged = get_local_id(0) & 2;
  const uint even = exchanged ? 0x2064 : 0x6420, odd = exchanged ? 0x3175 : 0x7531;
  uint x[4];
  load_matrices_transposed(x, (place ^ f * 64) + step * STEP_LEFT);
  UNROLL for (int q = 0; q < 2; ++q) {
    words[2 * q] = permuted_bytes(x[2 * q], x[2 * q + 1], even);
    words[2 * q + 1] = permuted_bytes(x[2 * q], x[2 * q + 1], odd);
  }
}
#endif
