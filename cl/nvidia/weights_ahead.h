/* weights_ahead: quantised weights as pairs of A's type in registers, for mma_quantized.cl. A work-item takes a run of 32
 * weights of a row, eight at a time.
 *
 *   run_t                               what is read ahead of a run
 *   read_run(run, row, k, K, end)       starts the loads of the run at k
 *   take_run(run, row, k, K, end)       before the run is used: zeros if k >= end
 *   mode_of, ready_run, eight           weights_halves.h
 *
 * KEPT runs of a row are in registers at the same time. Of other weights than affine ones read_run only fetches the bytes, or
 * those near them, into the cache.
 *
 * Affine weights (BITS not 0) are loaded a step ahead. They lie as a stream of fields of BITS bits, then scales, then biases
 * (formats/affine.h).
 *
 * Macros: BITS, bits of an affine weight, else 0; BYTES_OF_256, what 256 weights take of a row, if BITS is 0; AHEAD; those of
 * weights_halves.h; those of the format, whose header comes before.
 */
#if !defined(BITS)
#error "weights_ahead.h needs BITS"
#endif
#include "nvidia/elements.h"
#include "nvidia/ptx_halves.h"
#if BITS == 0
#ifndef BYTES_OF_256
#error "weights_ahead.h needs BYTES_OF_256"
#endif
#define RUN 32
#define PACKED CAT(packed_, ELEMENT)
#define TOP_MODE 0
#define KEPT 1
typedef struct { uint words[RUN / 2]; } run_t;

INLINE void read_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  prefetch_line(row + min(k, end - RUN) / RUN * BYTES_OF_256 / (256 / RUN));
}

INLINE void take_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  float16 low = (float16)(0), high = (float16)(0);
  if (k < end) weights32(row, k, K, &low, &high);
  const float16 halves[2] = {low, high};
  UNROLL for (int h = 0; h < 2; ++h) {
    const float *v = (const float *)&halves[h];
    UNROLL for (int i = 0; i < 8; ++i) run->words[8 * h + i] = PACKED(v[2 * i], v[2 * i + 1]);
  }
}

#define mode_of(runs, count) 0
#define ready_run(run, mode) ((void)0)
INLINE void eight(uint *words, const run_t *run, const int s, const int mode)
{
  UNROLL for (int i = 0; i < 4; ++i) words[i] = run->words[4 * s + i];
}
#else

#include "nvidia/weights_halves.h"
#define KEPT AHEAD

/* Runs begin on multiples of 4 BITS bytes. */
INLINE void read_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  const int at = min(k, end - RUN);
  __global const uchar *from = row + (long)at / 8 * BITS;
#if BITS % 4 == 0
  UNROLL for (int w = 0; w < BITS; w += 4) read_once(run->words + w, from + 4 * w);
#else
  UNROLL for (int w = 0; w < BITS; ++w) run->words[w] = ((__global const uint *)from)[w];
#endif
  __global const scale_bits *scales = (__global const scale_bits *)(row + (long)K / 8 * BITS);
  run->scale = scales[at / GROUP_SIZE];
  run->bias = scales[(K + at) / GROUP_SIZE];
}

/* A condition on what read_run loads would wait for it there. */
INLINE void take_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  run->scale = k < end ? run->scale : 0;
  run->bias = k < end ? run->bias : 0;
}
#endif
