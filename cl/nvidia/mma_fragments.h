/* mma_fragments: fragments for mma_ring.h, loaded from local memory and multiplied by mma.sync: of elements of 1, 2 and 4
 * bytes (ptx_mma.h), and of float64 (ptx_mma.h). For either there are
 *
 *   BK STEPS                        a block of K is multiplied in STEPS steps
 *   LIE_A LIE_B                     ALONG, ACROSS, TURNED: how a tile lies in local memory
 *   LINE_ACROSS(extent)             elements of a line across K, of a tile of `extent` rows
 *   LINE_BYTES(elements)            distance between lines in local memory
 *   FLIP(byte, elements)            byte `byte` of a tile with lines of `elements` lies at byte ^ FLIP. FLIP changes
 *                                   bits 4 to 6 only, and depends on the bits above them only
 *   acc_t word_t WORDS_A WORDS_B    types of an accumulator and of a register; registers of a fragment
 *   LOADED_B                        fragments of B that one load_b loads
 *   load_a load_b mma
 *   PARTS                           1: a block holds 64 bytes of hi and 64 bytes of lo of the same k (split.h)
 *
 * Macros: ELEMENT (operands.h); BM BN; TRANS_A TRANS_B (gemm.h); SPLIT, if defined: operands are parts (split.h), stored
 * along K; of float64 BK, a multiple of MMA_K, and MMA_K 4, 8 (ptx_mma.h).
 */
#include "include/gemm.h"
#include "nvidia/ptx_mma.h"

#define ALONG 0  /* along K, as the operand is stored */
#define ACROSS 1 /* across K, as the operand is stored */
#define TURNED 2 /* along K, though the operand is stored across K */

#if ELEMENT_BYTES != 8
/* A tile lies in lines of 128 bytes. 16-byte chunk c of line r lies at chunk c ^ (r % 8), so that the eight rows that
 * ldmatrix reads at once meet different memory banks. Along K, a line holds a block of K of one row of A (column of B).
 * Across K (16-bit elements only), it holds 64 rows (columns) at one k; the lines of the next 64 rows follow those of
 * all k of the block. Tiles of 32 and 16 rows have lines of 64 and 32 bytes: chunk c lies at c ^ (r / 2 % 4) and
 * c ^ (r / 4 % 2). TF32 operands that are stored across K lie along K (TURNED). */
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
#else
/* A tile lies in local memory as its operand is stored: a line holds K of one row (along K) or rows at one k (across
 * K). A line is 4 elements longer than the tile. So the 16 work-items that read at the same time, 4 lines x 4 elements,
 * meet 16 different banks of 8 bytes. */
#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(MMA_K)
#error "mma_fragments.h needs BM BN BK MMA_K"
#endif
#define PARTS 0
#define LIE_A (TRANS_A ? ACROSS : ALONG)
#define LIE_B (TRANS_B ? ALONG : ACROSS)
#define QUARTERS (MMA_K / 4)
#define STEPS (BK / MMA_K)
#define LINE_ACROSS(extent) (extent)
#define LINE_BYTES(elements) (((elements) + 4) * 8)
#define FLIP(byte, elements) 0
#define ELEMENT_AT(line, x, elements) ((line) * ((elements) + 4) + (x))
#define AT_A(m, k) (LIE_A == ACROSS ? ELEMENT_AT(k, m, BM) : ELEMENT_AT(m, k, BK))
#define AT_B(k, n) (LIE_B == ACROSS ? ELEMENT_AT(k, n, BN) : ELEMENT_AT(n, k, BK))

typedef double acc_t;
typedef double word_t;
#define WORDS_A (2 * QUARTERS)
#define WORDS_B QUARTERS
#define LOADED_B 1

/* Loads the fragment at row `row` and k = MMA_K step, from the tile at byte `at` of `tiles`. */
INLINE void load_a(word_t *w, __local const uchar *tiles, const int at, const int row, const int step)
{
  __local const double *tile = (__local const double *)(tiles + at);
  const int m = row + get_local_id(0) % 32 / 4, k = step * MMA_K + get_local_id(0) % 4;
  UNROLL for (int e = 0; e < WORDS_A; ++e) w[e] = tile[AT_A(m + e % 2 * 8, k + e / 2 * 4)];
}

/* The same for B, at column `column`. */
INLINE void load_b(
    word_t w[1][WORDS_B], __local const uchar *tiles, const int at, const int column, const int step)
{
  __local const double *tile = (__local const double *)(tiles + at);
  const int n = column + get_local_id(0) % 32 / 4, k = step * MMA_K + get_local_id(0) % 4;
  UNROLL for (int e = 0; e < WORDS_B; ++e) w[0][e] = tile[AT_B(k + e * 4, n)];
}
#endif
