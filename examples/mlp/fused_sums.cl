/* fused_sums: the sums of fused.cl for COLUMNS columns. It is included for a tile and for the last layer, as compilers
 * keep an array in registers only where its size is a number.
 *
 * Macros: those of fused.cl; COLUMNS; AT_ONCE, a divisor of it; SUM(name), what a function is called here.
 */
/* partial[slice][j][b] = sum over the k of a slice of x[k][b] w[j][k]. A slice takes VW neighbouring k, skips those of
 * the other slices, takes VW again. */
INLINE void SUM(multiply)(
    __local float *partial, const SEEN float *x, const HELD float *w, const int depth)
{
  for (int unit = get_local_id(0); unit < SLICES * LANES; unit += LOCAL) {
    const int slice = unit / LANES, b = unit % LANES * VB;
    pictures_t sum[COLUMNS];
    UNROLL for (int j = 0; j < COLUMNS; ++j) sum[j] = 0;
    for (int first = slice * VW; first < depth; first += SLICES * VW * IN_FLIGHT) {
      pictures_t values[IN_FLIGHT][VW];
      UNROLL for (int u = 0; u < IN_FLIGHT; ++u) {
        const int k = first + u * SLICES * VW;
        if (u == 0 || k < depth)
          UNROLL for (int i = 0; i < VW; ++i) values[u][i] = READ(VB, x, k + i, b);
      }
      UNROLL for (int u = 0; u < IN_FLIGHT; ++u) {
        const int k = first + u * SLICES * VW;
        if (u == 0 || k < depth)
          UNROLL for (int j = 0; j < COLUMNS; ++j) {
            const weights_t some = *(const HELD weights_t *)(w + j * depth + k);
            UNROLL for (int i = 0; i < VW; ++i) sum[j] += values[u][i] * ((const float *)&some)[i];
          }
      }
    }
    UNROLL for (int j = 0; j < COLUMNS; ++j)
      *(__local pictures_t *)(partial + (slice * COLUMNS + j) * PICTURES + b) = sum[j];
  }
}

/* Adds the slices, always in the same order. */
INLINE float SUM(sum_of_slices)(const __local float *partial, const int j, const int b)
{
  float sum = 0;
  UNROLL for (int slice = 0; slice < SLICES; ++slice) sum += partial[(slice * COLUMNS + j) * PICTURES + b];
  return sum;
}

/* w[j][k] -= rate * sum over b of x[k][b] y[j][b]. A work-item takes a k and AT_ONCE columns. Or, where x is not staged,
 * VK of x `along` and all columns. */
#if STAGE
INLINE void SUM(update)(HELD float *w, const SEEN float *x, const HELD float *y, const int depth, const float rate)
{
  for (int unit = get_local_id(0); unit < depth * (COLUMNS / AT_ONCE); unit += LOCAL) {
    const int part = AT_ONCE < COLUMNS ? unit / depth : 0, k = unit - part * depth, first = part * AT_ONCE;
    float4 sum[AT_ONCE];
    UNROLL for (int j = 0; j < AT_ONCE; ++j) sum[j] = 0;
    UNROLL for (int b = 0; b < PICTURES; b += 4) {
      const float4 values = READ(4, x, k, b);
      UNROLL for (int j = 0; j < AT_ONCE; ++j) sum[j] += values * *(const HELD float4 *)(y + (first + j) * PICTURES + b);
    }
    UNROLL for (int j = 0; j < AT_ONCE; ++j)
      w[(first + j) * depth + k] -= rate * ((sum[j].x + sum[j].y) + (sum[j].z + sum[j].w));
  }
}
#else
INLINE void SUM(update)(HELD float *w, const __global float *x, const HELD float *y, const int depth,
    const float rate)
{
  for (int k = get_local_id(0) * VK; k < depth; k += LOCAL * VK) {
    inputs_t sum[COLUMNS];
    UNROLL for (int j = 0; j < COLUMNS; ++j) sum[j] = 0;
    for (int first = 0; first < PICTURES; first += ROW_LOADS) {
      inputs_t values[ROW_LOADS];
      UNROLL for (int u = 0; u < ROW_LOADS; ++u) values[u] = LOAD(VK, x + (first + u) * depth + k);
      UNROLL for (int u = 0; u < ROW_LOADS; ++u)
        UNROLL for (int j = 0; j < COLUMNS; ++j) sum[j] += values[u] * y[j * PICTURES + first + u];
    }
    UNROLL for (int j = 0; j < COLUMNS; ++j) {
      HELD inputs_t *const weights = (HELD inputs_t *)(w + j * depth + k);
      *weights -= rate * sum[j];
    }
  }
}
#endif

/* bias[j] -= rate * sum over b of y[j][b], by the last work-items, which have the least to do in `update`. */
INLINE void SUM(update_bias)(HELD float *bias, const HELD float *y, const float rate)
{
  for (int j = LOCAL - 1 - (int)get_local_id(0); j < COLUMNS; j += LOCAL) {
    float sum = 0;
    for (int b = 0; b < PICTURES; ++b) sum += y[j * PICTURES + b];
    bias[j] -= rate * sum;
  }
}
#undef COLUMNS
#undef AT_ONCE
#undef SUM
