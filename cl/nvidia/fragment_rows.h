/* Which of a quartet's 64 rows the fragments of ptx_wgmma.h stand for, and where a left operand across K that goes
 * through registers lies in local memory.
 *
 * Row 16 s + g + 8 h of a fragment, of work-item w = 32 s + 4 g + t, is
 *
 *     LEFT_REGISTERS 0    row 16 s + g + 8 h: as the operand lies along K, or the unit reads it itself
 *     LEFT_REGISTERS 1    row 32 s1 + 16 g1 + 8 s0 + 4 g2 + 2 g0 + h, where s1 s0 and g2 g1 g0 are bits of s and g
 *
 * The second order is for elements of 4 bytes, in boxes of ptx_map.h of 32 rows by 32 of K:
 *
 *     chunk of 4 rows at k   0 1 2 3 | 4 5 6 7        a work-item reads h = 0 and 1 at once, 8 bytes; the 16 that read
 *     s0 g2                  0 0 1 1 | 0 0 1 1        together have g0, g1 and t of their own: chunks c ^ t and
 *                                                     (c + 4) ^ t, 16 pairs of banks
 *     g1                     0 0 0 0 | 1 1 1 1        and results of h = 0 and 1 are neighbours
 *
 * Macros: TRANS_A 1: A lies across K; SWAPPED 1: the fragments are of out^T; ELEMENT (elements.h).
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "nvidia/elements.h"

#if !defined(SWAPPED)
#error "fragment_rows.h needs SWAPPED"
#endif
#define OUT_AT(i, j, ldo) (SWAPPED ? (long)(j) * (ldo) + (i) : (long)(i) * (ldo) + (j))
#define LEFT_REGISTERS (TRANS_A && ELEMENT_BYTES == 4)
#if LEFT_REGISTERS
#define ROW_STEP 1 /* from h = 0 to 1 */
INLINE int fragment_row(const int w)
{
  return (w >> 6) * 32 + (w >> 3 & 1) * 16 + (w >> 5 & 1) * 8 + (w >> 4 & 1) * 4 + (w >> 2 & 1) * 2;
}

/* Where the rows of work-item w lie at k = t, in bytes. k = t + 4 is 512 bytes on and 64 exchanged; a step of 8 of
 * K is 1,024 bytes on. */
INLINE uint fragment_place(const int w)
{
  const int row = fragment_row(w), t = w % 4;
  return row / 32 * 4096 + t * 128 + (row % 32 / 4 ^ t) * 16 + row % 4 * 4;
}
#else
#define ROW_STEP 8
INLINE int fragment_row(const int w) { return w / 32 * 16 + w % 32 / 4; }
#endif
