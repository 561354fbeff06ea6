/* Dequantised weights, float16 vectors, as A's type holds them.
 *
 * Defines ROUNDED(v), v rounded to A_TYPE, to nearest even, and KEEP(p, v), which stores it as 16 elements of A_TYPE at
 * p, aligned to them all; BITS_OF(x), the bits of a float as A_TYPE holds it, of 16 bits. A_TYPE is float32, float16 or
 * bfloat16.
 *
 * No arithmetic on 16-bit types is needed. Where clang was told of a processor with conversions, its own builtins become
 * those; vstore_half is a loop there.
 * Macros: those of types.h, and of the format whose header comes before.
 */
#include "include/types.h"

INLINE uint16 bits_of_bfloat16(const float16 v)
{
  const uint16 bits = as_uint16(v);
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

INLINE uint bits_float16(const float x)
{
  ushort kept;
  vstore_half_rte(x, 0, (half *)&kept);
  return kept;
}
INLINE uint bits_bfloat16(const float x) { return bits_of_bfloat16((float16)(x)).s0; }

#define rounded_float32(v) (v)
#define rounded_bfloat16(v) as_float16(bits_of_bfloat16(v) << 16)
#define keep_float32(p, v) (*(__global float16 *)(p) = (v))
#define keep_bfloat16(p, v) (*(__global ushort16 *)(p) = CONVERTED(ushort16, bits_of_bfloat16(v)))

#if HAS_AVX512
typedef short16 halves;
#define AS_HALVES(v) as_short16(__builtin_ia32_vcvtps2ph512_mask(v, 0, (halves)(0), (ushort)~0))
#define OF_HALVES(h) as_float16(__builtin_ia32_vcvtph2ps512_mask(h, (float16)(0), (ushort)~0, 4))
#elif defined(__F16C__)
typedef short16 halves;
#define AS_HALVES_8(v) as_short8(__builtin_ia32_vcvtps2ph256(v, 0))
#define AS_HALVES(v) ((halves)(AS_HALVES_8((v).lo), AS_HALVES_8((v).hi)))
#define OF_HALVES(h) ((float16)(OF_HALVES_8((h).lo), OF_HALVES_8((h).hi)))
#elif defined(cl_khr_fp16)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef half16 halves;
#define AS_HALVES(v) convert_half16_rte(v)
#define OF_HALVES(h) CONVERTED(float16, h)
#endif

#ifdef AS_HALVES
#define rounded_float16(v) OF_HALVES(AS_HALVES(v))
#define keep_float16(p, v) (*(__global halves *)(p) = AS_HALVES(v))
#else
INLINE float16 rounded_float16(const float16 v)
{
  ushort16 kept;
  vstore_half16_rte(v, 0, (half *)&kept);
  return vload_half16(0, (const half *)&kept);
}
#define keep_float16(p, v) vstore_half16_rte(v, 0, p)
#endif

#define ROUNDED(v) CAT(rounded_, A_TYPE)(v)
#define KEEP(p, v) CAT(keep_, A_TYPE)(p, v)
#define BITS_OF(x) CAT(bits_, A_TYPE)(x)
