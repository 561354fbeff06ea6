/* held_parts: half a step of wgmma_quantized.cl and wgmma_fragments.cl: 64 of the 128 weights along K of a quartet's columns.
 *
 * Macros: those of few_rows.h and weights.h.
 */
#include "nvidia/few_rows.h"
#include "nvidia/ptx_wgmma_held.h"

#define SPANS (RESIDENT && !IN_BLOCKS ? 1 : DEPTH / GROUP_SIZE) /* groups of a run */

INLINE void convert_in_mode(uint w[2][8], const run_t runs[2 * SPANS], const int part, const int mode)
{
  UNROLL for (int s = 2 * part; s < 2 * part + 2; ++s)
    UNROLL for (int n = 0; n < 2; ++n) eight(w[n] + s % 2 * 4, runs + n * SPANS + s * SPANS / 4, s, mode);
}

/* The weights of part 0 or 1 of the runs of two columns, for w of multiply_part. Run n SPANS + z has those of span z of column n.
 * `mode` is mode_of's, which need not be a constant. */
INLINE void convert_part(uint w[2][8], const run_t runs[2 * SPANS], const int part, const int mode)
{
  if (mode == TOP_MODE) convert_in_mode(w, runs, part, TOP_MODE);
  else if (mode) convert_in_mode(w, runs, part, 1);
  else convert_in_mode(w, runs, part, 0);
}

/* Starts sum += their product with A of the slice at `tile`, held_tile's, as a group of wgmma. */
INLINE void multiply_part(float *sum, uint w[2][8], const uint tile, const int part)
{
  wgmma_fence();
  UNROLL for (int j = 0; j < 4; ++j) {
    const uint of[4] = {w[0][2 * j], w[1][2 * j], w[0][2 * j + 1], w[1][2 * j + 1]};
    wgmma_held(sum, of, tile + part * (BOX_BYTES / 16) + 2 * j);
  }
  wgmma_commit();
}
