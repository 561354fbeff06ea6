/* fused_step: the parts of a step: forward, output, backward, the updates, and the gathering of a batch. `train` in
 * fused.cl puts them in order and lets work-groups meet between them.
 *
 * Macros: those of fused.cl, which includes it.
 */

#define COLUMNS TILE
#define AT_ONCE TILE
#define SUM(name) name##_tile
#include "fused_sums.cl"
#define COLUMNS OUTPUTS
#define AT_ONCE (OUTPUTS % 2 ? 1 : 2)
#define SUM(name) name##_last
#include "fused_sums.cl"

/* Writes one element of a tile where all work-groups read it, and where this one keeps it. */
INLINE void publish(__global float *matrix, const int pitch, HELD float *mine, const int tile, const int j, const int b,
    const float value)
{
  matrix[(tile * TILE + j) * PICTURES + b] = value;
#if !STAGE
  ALONG(matrix, pitch)[b * pitch + tile * TILE + j] = value;
#endif
#if HOLD
  mine[j * PICTURES + b] = value;
#endif
}

/* Copies what a layer reads, or D of a layer, to local memory, if STAGE. SYNC ends it. */
INLINE void stage_input(Work *work, const int layer, const __global float *from)
{
#if STAGE
  stage(SEEN_INPUT(layer, from), from, pitches[layer]);
#endif
}
INLINE void stage_d(Work *work, const int layer)
{
#if STAGE
  stage(SEEN_D(layer), place_of_d(work, layer), pitches[layer + 1]);
#endif
}

/* My columns of A[layer]. */
INLINE void forward(Work *work, const int layer, const __global float *from)
{
  const int pitch = pitches[layer + 1];
  SYNC();
  stage_input(work, layer, from);
  FOR_MY_TILES(tile, layer) {
    SYNC();
    multiply_tile(work->partial, SEEN_INPUT(layer, from), MY_COLUMNS(layer, tile), pitches[layer]);
    SYNC();
    for (int at = get_local_id(0); at < TILE * PICTURES; at += LOCAL) {
      const int j = at / PICTURES, b = at % PICTURES;
      const float z = sum_of_slices_tile(work->partial, j, b) + MY_BIAS(layer, tile)[j];
      publish(place_of_a(work, layer), pitch, MY_A(layer, tile), tile, j, b, fmax(z, 0.0f));
    }
  }
}

/* Logits of the batch, then in their place D[last] = (softmax - label) for pictures, 0 for padding; the loss of each
 * picture. `labels`: of this batch. */
INLINE void output(Work *work, const __local int *labels, __local float *loss)
{
  HELD float *const d = MY_LAST_D;
  const __global float *const from = place_of_a(work, HIDDEN - 1);
  stage_input(work, HIDDEN, from);
  SYNC();
  multiply_last(work->partial, SEEN_INPUT(HIDDEN, from), MY_LAST, pitches[HIDDEN]);
  SYNC();
  for (int at = get_local_id(0); at < OUTPUTS * PICTURES; at += LOCAL) {
    const int i = at / PICTURES, b = at % PICTURES;
    d[at] = sum_of_slices_last(work->partial, i, b) + MY_LAST_BIAS[i];
  }
  SYNC();
  for (int b = get_local_id(0); b < PICTURES; b += LOCAL) {
    const int real = b < BATCH, label = real ? labels[b] : 0;
    const float logit = d[label * PICTURES + b];
    float values[OUTPUTS]; /* in registers: the logits, then their exponentials */
    UNROLL for (int i = 0; i < OUTPUTS; ++i) values[i] = d[i * PICTURES + b];
    float most = values[0], sum = 0;
    UNROLL for (int i = 1; i < OUTPUTS; ++i) most = fmax(most, values[i]);
    UNROLL for (int i = 0; i < OUTPUTS; ++i) sum += values[i] = exp(values[i] - most);
    loss[b] = real ? log(sum) + most - logit : 0;
    const float scale = real ? 1 / sum : 0;
    UNROLL for (int i = 0; i < OUTPUTS; ++i)
      d[i * PICTURES + b] = values[i] * scale - (real && i == label ? 1.0f : 0.0f);
  }
  SYNC();
}

/* My columns of D of the last hidden layer, from D[last]. */
INLINE void backward_from_output(Work *work)
{
  const int layer = HIDDEN - 1, pitch = pitches[HIDDEN];
  FOR_MY_TILES(tile, layer)
    for (int at = get_local_id(0); at < TILE * PICTURES; at += LOCAL) {
      const int j = at / PICTURES, b = at % PICTURES;
      float sum = 0;
      UNROLL for (int i = 0; i < OUTPUTS; ++i)
        sum += MY_LAST_D[i * PICTURES + b] * MY_LAST[i * pitch + tile * TILE + j];
      const float value = MY_A(layer, tile)[j * PICTURES + b] > 0 ? sum : 0;
      publish(place_of_d(work, layer), pitch, MY_D(layer, tile), tile, j, b, value);
    }
}

/* My columns of D[layer], from all of D[layer + 1]. */
INLINE void backward(Work *work, const int layer)
{
  const int pitch = pitches[layer + 1];
  stage_d(work, layer + 1);
  FOR_MY_TILES(tile, layer) {
    SYNC();
    multiply_tile(work->partial, SEEN_D(layer + 1), MY_ROWS(layer + 1, tile), pitches[layer + 2]);
    SYNC();
    for (int at = get_local_id(0); at < TILE * PICTURES; at += LOCAL) {
      const int j = at / PICTURES, b = at % PICTURES;
      const float sum = sum_of_slices_tile(work->partial, j, b);
      const float value = MY_A(layer, tile)[j * PICTURES + b] > 0 ? sum : 0;
      publish(place_of_d(work, layer), pitch, MY_D(layer, tile), tile, j, b, value);
    }
  }
}

INLINE void update_columns(Work *work, const int layer, const __global float *from, const float rate)
{
  const SEEN float *const input = FOR_UPDATE(SEEN_INPUT(layer, from), pitches[layer]);
  FOR_MY_TILES(tile, layer) {
    update_tile(MY_COLUMNS(layer, tile), input, MY_D(layer, tile), pitches[layer], rate);
    update_bias_tile(MY_BIAS(layer, tile), MY_D(layer, tile), rate);
  }
}

/* The rows of W[layer] that my columns of the layer before need. */
INLINE void update_rows(Work *work, const int layer, const float rate)
{
  const int pitch = pitches[layer + 1];
  const SEEN float *const d = FOR_UPDATE(SEEN_D(layer), pitch);
  FOR_MY_TILES(tile, layer - 1) update_tile(MY_ROWS(layer, tile), d, MY_A(layer - 1, tile), pitch, rate);
}

/* The last layer, with A and D[last] of the step before: until then nobody needs it. */
INLINE void update_output(Work *work, const float rate)
{
  const int pitch = pitches[HIDDEN];
  const __global float *const from = place_of_former_a(work, HIDDEN - 1);
  update_last(MY_LAST, FOR_UPDATE(SEEN_INPUT(HIDDEN, from), pitch), MY_LAST_D, pitch, rate);
  update_bias_last(MY_LAST_BIAS, MY_LAST_D, rate);
}

/* My share of a batch, from the pictures. `order`: of this batch. */
INLINE void gather(Work *work, __global float *x, const __global float *images, const __global int *order)
{
#if !STAGE
  __global float *const along = ALONG(x, pitches[0]);
#endif
  const int stride = (int)work->groups * LOCAL;
  for (int at = (int)work->group * LOCAL + (int)get_local_id(0); at < INPUTS * PICTURES; at += stride) {
    const int k = at / PICTURES, b = at % PICTURES;
    if (b < BATCH) {
      const float value = images[(size_t)order[b] * INPUTS + k];
      x[at] = value;
#if !STAGE
      along[b * pitches[0] + k] = value;
#endif
    }
  }
}
