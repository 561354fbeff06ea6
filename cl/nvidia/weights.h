/* weights: how mma_quantized.cl, wgmma_quantized.cl and wgmma_fragments.cl convert affine weights.
 *
 * Runs of 32 affine weights, in registers, become pairs of A's type, eight at a time:
 *
 *   run_t                     words, the fields of a run of a row; scale and bias, their bits
 *   mode_of(runs, count)      how the weights of these runs are computed, for all work-items of a sub-group
 *   ready_run(run, mode)      before the first eight() of a run
 *   eight(words, run, s, mode)   weights 8 s up to 8 s + 8 of the run, two a word; s and mode are constants
 *
 * IN_BLOCKS 1: two neighbours are 16 bits apart in a word (fragment_blocks.h): no bytes move.
 *
 * A weight is field * scale + bias in float32, rounded to A's type (formats/affine.h).
 *
 *   mode   instructions for 8 weights of 4 bits
 *   0      35     in float32
 *   1      15     a 16-bit FMA, which rounds once, of the field times 2^15 (2^127)
 *   2      12     a 16-bit FMA of the field where it lies in a byte; for BITS 4 and small scales; with IN_BLOCKS 11
 *
 * FUSED 1: modes 1 and 2 may be used, as scales have A's type. One rounding gives what float32, rounded again, gives where
 * float32 holds field * scale + bias exactly. That needs 24 bits or less from the top of the greater to the end of the smaller,
 * which bias / scale tells. Fields of 16-bit floats are that number times the least that the type has, `least`, exactly, also
 * where they are subnormal.
 *
 * Macros: BITS, of an affine weight: 2, 3, 4, 6, 8; GROUP_SIZE, weights that share a scale; SCALE_ELEMENT, its type; FUSED; those of
 * slices.h. BITS 0: weights of other formats. Then the others of these are not needed.
 */
#include "nvidia/slices.h"

#ifndef BITS
#error "weights.h needs BITS"
#endif
#ifndef IN_BLOCKS
#define IN_BLOCKS 0
#endif
#define RUN 32
#define PACKED CAT(packed_, ELEMENT)

#if BITS
#if !defined(GROUP_SIZE) || !defined(SCALE_ELEMENT) || !defined(FUSED)
#error "weights.h needs GROUP_SIZE SCALE_ELEMENT FUSED"
#endif
#if !FUSED
#define TOP_MODE 0
#elif BITS == 4
#define TOP_MODE 2
#else
#define TOP_MODE 1
#endif

typedef CAT(elem_, SCALE_ELEMENT) scale_t;
#if BYTES_OF(SCALE_ELEMENT) == 4
typedef uint scale_bits;
#else
typedef ushort scale_bits;
#endif
typedef struct {
  uint words[BITS];
  uint scale, bias;    /* their bits; IN_BLOCKS and of 16 bits: twice */
  uint scales, biases; /* modes 1 and 2: as they are multiplied and added, twice */
  uint start; /* mode 0: 2^23, which a compiler that knew it would move to registers again and again */
} run_t;

INLINE float number_of(const uint bits)
{
  const scale_bits own = (scale_bits)bits;
  return LOAD(SCALE_ELEMENT, (const scale_t *)&own, 0);
}

/* Field j of the run. */
INLINE uint field(const run_t *run, const int j)
{
  const int word = j * BITS / 32, at = j * BITS % 32;
  uint bits = run->words[word] >> at;
  if (at + BITS > 32) bits |= run->words[min(word + 1, BITS - 1)] << (32 - at) % 32;
  return bits & (1u << BITS) - 1;
}

/* Eight fields from 8 s on in bytes: e in bytes[e % 2], byte e / 2, times 2^up. */
INLINE void fields_in_bytes(uint bytes[2], const run_t *run, const int s, const int up)
{
#if BITS == 4
  bytes[0] = run->words[s] << up & 0x0f0f0f0f << up;
  bytes[1] = run->words[s] >> (4 - up) & 0x0f0f0f0f << up;
#elif BITS == 8
  bytes[0] = chosen_bytes(run->words[2 * s], run->words[2 * s + 1], 0x6420);
  bytes[1] = chosen_bytes(run->words[2 * s], run->words[2 * s + 1], 0x7531);
#else
  bytes[0] = bytes[1] = 0;
  UNROLL for (int e = 0; e < 8; ++e) bytes[e % 2] |= field(run, 8 * s + e) << e / 2 * 8;
#endif
}

#if IN_BLOCKS
/* Fields 2 j and 2 j + 1 of the run as 16-bit integers, times 2^up. Few bits are masked and few words shifted to the right, as one
 * unit does both at half the rate of others. */
INLINE uint pair_of(const run_t *run, const int j, const int up)
{
  const uint word = run->words[j / (16 / BITS)];
  const int at = j % (16 / BITS) * BITS;
#if BITS == 8
  return chosen_bytes(word, 0, at ? 0x4341 : 0x4240) << up;
#else
  const uint bytes = at < 8 ? word : chosen_bytes(word, 0, 0x4341);
  return (at % 8 > up ? bytes >> (at % 8 - up) : bytes << (up - at % 8)) & 0x000f000fu << up;
#endif
}
#endif

/* Mode 1 multiplies fields by `large` and scales by 1 / (large least), mode 2 scales by 1 / (2^UP least), as fields are UP bits
 * up: it adds to their exponents, so they must be normal, and less than 2^(UP - 8) (2^-2). */
#define large_float16 0x78007800u    /* 2^15 */
#define large_bfloat16 0x7f007f00u   /* 2^127 */
#define scaling_float16 0x60006000u  /* 2^9 */
#define scaling_bfloat16 0x42804280u /* 2^6 */
#define up_float16 (IN_BLOCKS ? 4 : 3) /* with 4 a field of a word's four needs no shift */
#define up_bfloat16 3
#define UP CAT(up_, ELEMENT)
#define raised_float16 ((24 - up_float16) * 0x04000400u)
#define raised_bfloat16 0x41004100u  /* 130 */
#define exponent_float16 0x7c00
#define exponent_bfloat16 0x7f80
#define unit_float16 0x0400 /* of the exponent */
#define unit_bfloat16 0x0080
#define normal_float16 (BITS == 4 ? 6 + up_float16 : 20) /* exponents of scales that the highest mode takes */
#define normal_bfloat16 (BITS == 4 ? 124 : 246)
#define limit_float16 0x1p6f
#define limit_bfloat16 0x1p120f
#define exponents_apart_float16 12 /* 23 less the bits of the significand */
#define exponents_apart_bfloat16 15
#define FUSED_TWO CAT(fused_, ELEMENT)
#define POWER_OF_2(e) as_float((127 + (e)) << 23)

#if FUSED
/* Whether the highest mode serves, by the exponents alone: quick, and sometimes false where it would. */
INLINE bool top_serves(const run_t *run)
{
  const uint unit = CAT(unit_, ELEMENT), apart = CAT(exponents_apart_, ELEMENT) - 1;
  const uint scale = run->scale & CAT(exponent_, ELEMENT), bias = run->bias & CAT(exponent_, ELEMENT);
  return scale - unit < CAT(normal_, ELEMENT) * unit &&
         bias - scale + (apart - BITS) * unit <= (2 * apart - BITS) * unit;
}

INLINE bool is_fused(const run_t *run)
{
  const int apart = CAT(exponents_apart_, ELEMENT);
  const float scale = number_of(run->scale & 0x7fff), bias = number_of(run->bias & 0x7fff);
  return bias <= POWER_OF_2(apart) * scale && bias >= POWER_OF_2(BITS - apart) * scale && scale < CAT(limit_, ELEMENT);
}
#else
#define top_serves(run) false
#define is_fused(run) false
#endif

INLINE int mode_of(const run_t *runs, const int count)
{
#if FUSED
  bool top = true, fused = true;
  UNROLL for (int n = 0; n < count; ++n) top &= top_serves(runs + n);
  if (all_items(top)) return TOP_MODE;
  UNROLL for (int n = 0; n < count; ++n) fused &= is_fused(runs + n);
  return all_items(fused);
#else
  return 0;
#endif
}

INLINE void ready_run(run_t *run, const int mode)
{
  run->start = 0x4b000000u + ((uint)get_local_size(0) >> 31);
  run->scales = IN_BLOCKS ? run->scale : chosen_bytes(run->scale, 0, 0x1010);
  run->biases = IN_BLOCKS ? run->bias : chosen_bytes(run->bias, 0, 0x1010);
#if FUSED
  run->scales = mode == 2 ? run->scales + CAT(raised_, ELEMENT) : FUSED_TWO(run->scales, CAT(scaling_, ELEMENT), 0);
#endif
}

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

INLINE void eight(uint *words, const run_t *run, const int s, const int mode)
{
  const int up = mode == 2 ? UP : 0;
#if IN_BLOCKS
  uint pairs[4];
  UNROLL for (int i = 0; i < 4; ++i) pairs[i] = pair_of(run, 4 * s + i, up);
#define PAIR(i) pairs[i]
#define IN_BYTE_0(e) chosen_bytes(pairs[(e) / 2], run->start, 0x7440 + (e) % 2 * 2)
#else
  uint bytes[2];
  fields_in_bytes(bytes, run, s, up);
#define PAIR(i) (chosen_bytes(bytes[0], bytes[1], 0xc480 + (i) * 0x1111) & (BITS == 8 ? 0x00ff00ffu : ~0u))
#define IN_BYTE_0(e) chosen_bytes(bytes[(e) % 2], run->start, 0x7440 + (e) / 2)
#endif
#if FUSED
  if (mode) {
    UNROLL for (int i = 0; i < 4; ++i) {
      uint fields = PAIR(i);
      if (mode == 1) fields = FUSED_TWO(fields, CAT(large_, ELEMENT), 0);
      words[i] = FUSED_TWO(fields, run->scales, run->biases);
    }
    return;
  }
#endif
  const float scale = number_of(run->scale), bias = number_of(run->bias);
  float v[8];
  /* A field as the end of 2^23's significand: conversions would take longer. */
  UNROLL for (int e = 0; e < 8; ++e)
    v[e] = weight(as_float(IN_BYTE_0(e)) - 8388608.0f, scale, bias);
  UNROLL for (int i = 0; i < 4; ++i) words[i] = PACKED(v[2 * i], v[2 * i + 1]);
}
#endif
