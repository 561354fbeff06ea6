/* mma_words: fragments of elements of 1, 2 and 4 bytes for mma_ring.h, loaded by ldmatrix and multiplied by mma.sync
 * (ptx_mma.h).
 *
 * A tile lies in lines of 128 bytes. 16-byte chunk c of line r lies at chunk c ^ (r % 8), so that the eight rows that
 * ldmatrix reads at once meet different memory banks. Along K, a line holds a block of K of one row of A (column of B).
 * Across K (16-bit elements only), it holds 64 rows (columns) at one k; the lines of the next 64 rows follow those of
 * all k of the block. Tiles of 32 and 16 rows have lines of 64 and 32 bytes: chunk c lies at c ^ (r / 2 % 4) and
 * c ^ (r / 4 % 2). TF32 operands that are stored across K lie along K (TURNED).
 *
 * Macros: ELEMENT (elements.h); SPLIT, if defined: operands are parts (split.h), stored along K; TRANS_A TRANS_B (gemm.h).
 */
#include "include/gemm.h"
#include "nvidia/elements.h"
#include "nvidia/mma_layouts.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/ptx_matrices.h"
#include "nvidia/ptx_mma.h"

#ifdef SPLIT
#define PARTS 1
#define LIE_A ALONG
#define LIE_B ALONG
#else
#define PARTS 0
#define LIE(stored_across) ((stored_across) ? ELEMENT_BYTES == 2 ? ACROSS : TURNED : ALONG)
#define LIE_A LIE(TRANS_A)
#define LIE_B LIE(!TRANS_B)
#endif
#define BK (128 / ELEMENT_BYTES)
#define STEPS 4
#define LINE_ACROSS(extent) ((extent) < 64 ? (extent) : 64)
#define LINE_BYTES(elements) ((elements) * ELEMENT_BYTES)
#define FLIP(byte, elements) ((byte) / 128 % (LINE_BYTES(elements) / 16) * 16)

typedef mma_acc acc_t;
typedef uint word_t;
#define WORDS_A 4
#define WORDS_B 2
#define LOADED_B 2 /* fragments of B that one instruction loads */

/* Rounds float32 operands to TF32. Parts were rounded when they were split. */
INLINE uint to_operand(const uint word) { return PARTS ? word : mma_operand(word); }

/* Where rows from `row` on, a multiple of 8, lie at k, in a tile of `extent` rows that lies across K. */
INLINE uint place_across(const int extent, const int row, const int k)
{
  const int elements = LINE_ACROSS(extent);
  const uint byte = k * LINE_BYTES(elements) + row % elements * ELEMENT_BYTES;
  return row / elements * (BK * LINE_BYTES(elements)) + (byte ^ FLIP(byte, elements));
}

/* Loads the fragment at row `row` and byte 32 step of K, from the tile at byte `at` of `tiles`. */
INLINE void load_a(word_t *w, __local const uchar *tiles, const int at, const int row, const int step)
{
  const uint tile = local_address(tiles) + at;
  const int lane = get_local_id(0) % 32;
  if (LIE_A == ACROSS)
    load_matrices_transposed(w, tile + place_across(BM, row + lane / 8 % 2 * 8, step * 16 + lane / 16 * 8 + lane % 8));
  else
    load_matrices(w, tile + (row + lane % 16) * 128 + (step * 2 + lane / 16 ^ lane % 8) * 16);
  for (int e = 0; e < 4; ++e) w[e] = to_operand(w[e]);
}

/* The same for B: two fragments, at columns `column` and `column` + 8. */
INLINE void load_b(word_t w[2][2], __local const uchar *tiles, const int at, const int column, const int step)
{
  const uint tile = local_address(tiles) + at;
  const int lane = get_local_id(0) % 32;
  uint both[4];
  const int n = column + lane / 16 * 8;
  if (LIE_B == ACROSS)
    load_matrices_transposed(both, tile + place_across(BN, n, step * 16 + lane / 8 % 2 * 8 + lane % 8));
  else
    load_matrices(both, tile + (n + lane % 8) * 128 + (step * 2 + lane / 8 % 2 ^ lane % 8) * 16);
  for (int e = 0; e < 4; ++e) w[e / 2][e % 2] = to_operand(both[e]);
}
