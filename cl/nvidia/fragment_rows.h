/* fragment_rows: which of a quartet's 64 rows a fragment of ptx_wgmma.h holds. Also where an A that is stored across K
 * and goes through registers lies in local memory.
 *
 * Row 16 s + g + 8 h of a fragment, held by work-item w = 32 s + 4 g + t, is row
 *
 *     LEFT_REGISTERS 0    16 s + g + 8 h
 *     LEFT_REGISTERS 1    32 s1 + 16 g1 + 8 s0 + 4 g2 + 2 g0 + h, where s1 s0 and g2 g1 g0 are the bits of s and g;
 *                         with elements of 1 byte 16 s + 2 g + h (wgmma_quartet.h)
 *
 * LEFT_REGISTERS 1 with elements of 4 bytes is A stored across K, in boxes of ptx_map.h of 32 rows by 32
 * of K. With its order of rows, a work-item reads h = 0 and 1 at once, 8 bytes. The 16 work-items that read at the same
 * time differ in g0, g1 and t. They read chunks c ^ t and (c + 4) ^ t, which are 16 pairs of memory banks:
 *
 *     chunk of 4 rows at k   0 1 2 3 | 4 5 6 7
 *     s0 g2                  0 0 1 1 | 0 0 1 1
 *     g1                     0 0 0 0 | 1 1 1 1
 *
 * Results of h = 0 and 1 are neighbours, too.
 *
 * Macros: TRANS_A 1: A is stored across K; SWAPPED 1: the fragments are those of out^T; ELEMENT (operands.h).
 */
#include "include/gemm.h"
#include "nvidia/operands.h"

#if !defined(SWAPPED)
#error "fragment_rows.h needs SWAPPED"
#endif
#define OUT_AT(i, j, ldo) (SWAPPED ? (long)(j) * (ldo) + (i) : (long)(i) * (ldo) + (j))
#define LEFT_REGISTERS (TRANS_A && (ELEMENT_BYTES == 4 || ELEMENT_BYTES == 1))
#define ROW_STEP (LEFT_REGISTERS ? 1 : 8) /* from h = 0 to 1 */
INLINE int fragment_row(const int w)
{
  if (!LEFT_REGISTERS) return w / 32 * 16 + w % 32 / 4;
  if (ELEMENT_BYTES == 1) return w / 32 * 16 + w % 32 / 4 * 2;
  return (w >> 6) * 32 + (w >> 3 & 1) * 16 + (w >> 5 & 1) * 8 + (w >> 4 & 1) * 4 + (w >> 2 & 1) * 2;
}

/* The order of a BM x BN tile's partial sums as wgmma.cl stores them and split_k.cl reads them, in chunks of CHUNK = 4:
 * one fragment of 64 rows (ptx_wgmma.h) after the other. Chunk 128 j + w of a fragment holds accumulators 4 j .. 4 j + 3
 * of work-item w = 32 s + 4 g + t: columns 8 j + 2 t and 8 j + 2 t + 1 of two rows. */
#define FRAGMENT_CHUNKS (64 * BN / CHUNK)
#define ROW_IN_TILE(chunk, e) \
  ((chunk) / FRAGMENT_CHUNKS * 64 + fragment_row((chunk) % 128) + (e) / 2 * ROW_STEP)
#define COLUMN_IN_TILE(chunk, e) ((chunk) % FRAGMENT_CHUNKS / 128 * 8 + (chunk) % 4 * 2 + (e) % 2)
