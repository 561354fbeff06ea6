/* fused_places: where matrices and weights lie, as fused_layout.py has placed them.
 *
 * `exchange` holds what crosses between work-groups. What only this one uses lies in `held` or, with HOLD 0, in `store`.
 *
 * Macros: HOLD, STAGE, TILE, PICTURES and the tables (fused.cl). Included by fused.cl, after Work.
 */

#define BOTH(pitch) (2 * (pitch) * PICTURES) /* floats of a matrix, across and along */
#define ALONG(matrix, pitch) ((matrix) + (pitch) * PICTURES)

INLINE __global float *place_of_a(const Work *work, const int layer)
{
  return work->exchange + a_at[layer] + work->parity * BOTH(pitches[layer + 1]);
}
/* The same, of the step before. */
INLINE __global float *place_of_former_a(const Work *work, const int layer)
{
  return work->exchange + a_at[layer] + (1 - work->parity) * BOTH(pitches[layer + 1]);
}
INLINE __global float *place_of_d(const Work *work, const int layer) { return work->exchange + d_at[layer]; }
INLINE __global float *place_of_x(const Work *work, const int step)
{
  return work->exchange + X_AT + step % 3 * BOTH(pitches[0]);
}
/* What a layer reads: X, or A of the layer before. */
INLINE __global float *place_of_input(const Work *work, const int layer, const int step)
{
  return layer == 0 ? place_of_x(work, step) : place_of_a(work, layer - 1);
}
#if STAGE
#define SEEN_INPUT(layer, from) ((void)(from), work->staged + staged_at[layer])
#define SEEN_D(layer) (work->staged + STAGED_D_AT)
#define FOR_UPDATE(seen, pitch) (seen)
#else
#define SEEN_INPUT(layer, from) (from)
#define SEEN_D(layer) place_of_d(work, layer)
#define FOR_UPDATE(seen, pitch) ALONG(seen, pitch)
#endif
#define FOR_MY_TILES(t, layer) \
  for (int t = (int)work->group; t < pitches[(layer) + 1] / TILE; t += (int)work->groups)

#if HOLD
#define SLOT(tile) ((tile) / (int)work->groups)
#define MY_COLUMNS(layer, tile) (work->held + held_columns_at[layer] + SLOT(tile) * TILE * pitches[layer])
#define MY_ROWS(layer, tile) (work->held + held_rows_at[layer] + SLOT(tile) * TILE * pitches[(layer) + 1])
#define MY_BIAS(layer, tile) (work->held + held_bias_at[layer] + SLOT(tile) * TILE)
#define MY_A(layer, tile) (work->held + held_a_at[layer] + SLOT(tile) * TILE * PICTURES)
#define MY_D(layer, tile) (work->held + held_d_at[layer] + SLOT(tile) * TILE * PICTURES)
#define MY_LAST (work->held + HELD_LAST_AT)
#else
#define MY_COLUMNS(layer, tile) (work->store + columns_at[layer] + (tile) * TILE * pitches[layer])
#define MY_ROWS(layer, tile) (work->store + rows_at[layer] + (tile) * TILE * pitches[(layer) + 1])
#define MY_BIAS(layer, tile) (work->store + bias_at[layer] + (tile) * TILE)
#define MY_A(layer, tile) (place_of_a(work, layer) + (tile) * TILE * PICTURES)
#define MY_D(layer, tile) (place_of_d(work, layer) + (tile) * TILE * PICTURES)
#define MY_LAST (work->store + COPIES_AT + (int)work->group * LAST_FLOATS)
#endif
/* The last layer: its columns, their bias, then D[last]. */
#define MY_LAST_BIAS (MY_LAST + OUTPUTS * pitches[HIDDEN])
#define MY_LAST_D (MY_LAST + LAST_D_AT)
