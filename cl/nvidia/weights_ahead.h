/* weights_ahead: quantised weights as pairs of A's type in registers, for mma_quantized.cl. A work-item takes a run of 32
 * weights of a row, eight at a time.
 *
 *   run_t                               what is read ahead of a run
 *   read_run(run, row, k, K, end)       starts the loads of the run at k, zeros if k >= end
 *   ready_run(run, row, k, K, end)      before the first eight() of a run. Returns whether `fused` may be 1
 *   eight(words, run, s, fused)         weights 8 s up to 8 s + 8 of the run, two a word
 *
 * KEPT runs of a row are in registers at the same time. Of other weights than affine ones read_run only fetches the bytes, or
 * those near them, into the cache.
 *
 * Affine weights (BITS not 0) are loaded a step ahead. They lie as a stream of fields of BITS bits, then scales, then biases
 * (formats/affine.h), and a weight is field * scale + bias in float32, rounded to A's type.
 *
 * FUSED 1: scales have A's type too. Then one instruction computes and rounds two weights. The result is that of float32,
 * rounded again, where float32 holds field * scale + bias exactly. That needs 24 bits or less from the top of the greater to
 * the end of the smaller, which bias / scale tells.
 *
 * Macros: BITS, bits of an affine weight, else 0; BYTES_OF_256, what 256 weights take of a row, if BITS is 0; AHEAD; GROUP_SIZE, weights that share a scale; SCALE_ELEMENT, its type; FUSED;
 * ELEMENT; those of the format, whose header comes before.
 */
#include "nvidia/elements.h"
#include "nvidia/ptx_halves.h"
#include "nvidia/ptx_round.h"

#if !defined(BITS)
#error "weights_ahead.h needs BITS, and of affine weights GROUP_SIZE SCALE_ELEMENT FUSED"
#endif
#define RUN 32
#define PACKED CAT(packed_, ELEMENT)

#if BITS == 0
#define FUSED 0
#define KEPT 1
#ifndef BYTES_OF_256
#error "weights_ahead.h needs BYTES_OF_256"
#endif
typedef struct { uint words[RUN / 2]; } run_t;

INLINE void read_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  prefetch_line(row + min(k, end - RUN) / RUN * BYTES_OF_256 / (256 / RUN));
}

INLINE bool ready_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  float16 low = (float16)(0), high = (float16)(0);
  if (k < end) weights32(row, k, K, &low, &high);
  const float16 halves[2] = {low, high};
  UNROLL for (int h = 0; h < 2; ++h) {
    const float *v = (const float *)&halves[h];
    UNROLL for (int i = 0; i < 8; ++i) run->words[8 * h + i] = PACKED(v[2 * i], v[2 * i + 1]);
  }
  return false;
}

INLINE void eight(uint *words, const run_t *run, const int s, const bool fused)
{
  UNROLL for (int i = 0; i < 4; ++i) words[i] = run->words[4 * s + i];
}
#else

#define KEPT AHEAD
typedef CAT(elem_, SCALE_ELEMENT) scale_t;
#if BYTES_OF(SCALE_ELEMENT) == 4
typedef uint scale_bits;
#else
typedef ushort scale_bits;
#endif
typedef struct {
  uint words[BITS];
  uint scale, bias; /* their bits */
  uint scales, biases; /* FUSED: as they are multiplied and added, twice */
  uint start; /* 2^23, which a compiler that knew it would move to registers again and again */
} run_t;

/* Runs begin on multiples of 4 BITS bytes. A run at k >= end is one of zeros: its scale and bias are. */
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
  const scale_bits scale = scales[at / GROUP_SIZE], bias = scales[(K + at) / GROUP_SIZE];
  run->scale = k < end ? scale : 0;
  run->bias = k < end ? bias : 0;
}

INLINE float number_of(const uint bits)
{
  const scale_bits own = (scale_bits)bits;
  return LOAD(SCALE_ELEMENT, (const scale_t *)&own, 0);
}
INLINE uint start_of(const int K) { return 0x4b000000u + ((uint)K >> 31); }

/* Field j of the run. */
INLINE uint field(const run_t *run, const int j)
{
  const int word = j * BITS / 32, at = j * BITS % 32;
  uint bits = run->words[word] >> at;
  if (at + BITS > 32) bits |= run->words[min(word + 1, BITS - 1)] << (32 - at) % 32;
  return bits & (1u << BITS) - 1;
}

/* Eight fields from 8 s on in bytes: e in bytes[e % 2], byte e / 2. */
INLINE void fields_in_bytes(uint bytes[2], const run_t *run, const int s)
{
#if BITS == 4
  bytes[0] = run->words[s] & 0x0f0f0f0f;
  bytes[1] = run->words[s] >> 4 & 0x0f0f0f0f;
#elif BITS == 8
  bytes[0] = chosen_bytes(run->words[2 * s], run->words[2 * s + 1], 0x6420);
  bytes[1] = chosen_bytes(run->words[2 * s], run->words[2 * s + 1], 0x7531);
#else
  bytes[0] = bytes[1] = 0;
  UNROLL for (int e = 0; e < 8; ++e) bytes[e % 2] |= field(run, 8 * s + e) << e / 2 * 8;
#endif
}

#if FUSED
/* A field in 16 bits is that number times the least that the type has, `least`, exactly, also where it is subnormal.
 * Scales are multiplied by 1 / (large least). */
#define large_float16 0x78007800u /* 2^15 */
#define large_bfloat16 0x7f007f00u /* 2^127 */
#define scaling_float16 0x60006000u /* 2^9 */
#define scaling_bfloat16 0x42804280u /* 2^6 */
#define limit_float16 0x1p6f
#define limit_bfloat16 0x1p120f
#define exponents_apart_float16 12 /* 23 less the bits of the significand */
#define exponents_apart_bfloat16 15
#define FUSED_TWO CAT(fused_, ELEMENT)
#define POWER_OF_2(e) as_float((127 + (e)) << 23)

INLINE bool ready_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  const int apart = CAT(exponents_apart_, ELEMENT);
  const float scale = number_of(run->scale & 0x7fff), bias = number_of(run->bias & 0x7fff);
  run->start = start_of(K);
  run->scales = FUSED_TWO(chosen_bytes(run->scale, 0, 0x1010), CAT(scaling_, ELEMENT), 0);
  run->biases = chosen_bytes(run->bias, 0, 0x1010);
  return bias <= POWER_OF_2(apart) * scale && bias >= POWER_OF_2(BITS - apart) * scale && scale < CAT(limit_, ELEMENT);
}

INLINE void eight_fused(uint *words, const run_t *run, const int s)
{
  uint bytes[2];
  fields_in_bytes(bytes, run, s);
  UNROLL for (int i = 0; i < 4; ++i) {
    const uint fields = chosen_bytes(bytes[0], bytes[1], 0xc480 + i * 0x1111) & (BITS == 8 ? 0x00ff00ffu : ~0u);
    words[i] = FUSED_TWO(FUSED_TWO(fields, CAT(large_, ELEMENT), 0), run->scales, run->biases);
  }
}
#else
#define eight_fused(words, run, s) ((void)0)
INLINE bool ready_run(run_t *run, __global const uchar *row, const int k, const int K, const int end)
{
  run->start = start_of(K);
  return false;
}
#endif

INLINE float weight(const float field, const float scale, const float bias)
{
#if BYTES_OF(SCALE_ELEMENT) == 4
#pragma OPENCL FP_CONTRACT OFF
  const float scaled = field * scale;
  return scaled + bias;
#else
  return fma(field, scale, bias);
#endif
}

INLINE void eight(uint *words, const run_t *run, const int s, const bool fused)
{
  if (FUSED && fused) {
    eight_fused(words, run, s);
    return;
  }
  const float scale = number_of(run->scale), bias = number_of(run->bias);
  uint bytes[2];
  fields_in_bytes(bytes, run, s);
  float v[8];
  /* A field as the end of 2^23's significand: conversions would take longer. */
  UNROLL for (int e = 0; e < 8; ++e)
    v[e] = weight(as_float(chosen_bytes(bytes[e % 2], run->start, 0x7440 + e / 2)) - 8388608.0f, scale, bias);
  UNROLL for (int i = 0; i < 4; ++i) words[i] = PACKED(v[2 * i], v[2 * i + 1]);
}
#endif
