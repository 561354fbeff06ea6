/* mma_double: fragments of float64 for mma_ring.h, multiplied by mma.sync (ptx_mma_double.h).
 *
 * A tile lies in local memory as its operand is stored: a line holds K of one row (along K) or rows at one k (across
 * K). A line is 4 elements longer than the tile. So the 16 work-items that read at the same time, 4 lines x 4 elements,
 * meet 16 different banks of 8 bytes.
 *
 * Macros: BM BN; BK, a multiple of MMA_K; MMA_K 4, 8, 16 (ptx_mma_double.h).
 */
#include "include/gemm.h"
#include "nvidia/mma_layouts.h"
#include "nvidia/ptx_mma_double.h"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(MMA_K)
#error "mma_double.h needs BM BN BK MMA_K"
#endif
#define PARTS 0
#define ELEMENT_BYTES 8
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
