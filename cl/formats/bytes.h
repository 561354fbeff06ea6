/* What the headers of formats share: loads of bytes, and small whole numbers as float32.
 *
 * Each header defines
 *   weights32(row, k, K, &low, &high): the 32 weights from k on, a multiple of 32, of a row of K weights,
 * with the bits of the format's dequantize in pyclmm/formats/. Where a value is d * q + m, d * q is exact, so
 * that a compiler may fuse the two or not. No header calls fma: rusticl of Mesa 26.2 does not link that of float16.
 *
 * A format whose weights are made of whole numbers and of scales, of some weights along K, may define for CPUs:
 *   CODES_GROUP, weights that share a scale and an offset, 32 or a multiple of 64; CODES_BITS, 4 or 8
 *   code_scales(row, k, K, count, scale, offset): those of `count` groups from weight k on, a multiple of 256; of a format
 *     without offsets these are left as they are
 *   codes64(row, k, K, codes): bytes, the codes of 64 weights from k on, a multiple of 64; of each CODES_EVEN_ODD weights
 *     every second one comes first, of 0 none
 *   CODES_ZERO, of 8 bits 128, if a weight is scale * (code - CODES_ZERO) + offset (quantized/int8_lines.h)
 * Of 4 bits nibbles.h makes these; and (quantized/rows_cpu.cl)
 *   NIBBLE_VALUES(codes, scale, offset): the weights of 16 codes, each below 16, with the bits of weights32
 */
#include "include/attributes.h"

typedef __global const uchar *bytes_t;

/* Blocks of GGUF have an even number of bytes, and begin at even addresses. Where clang was told of a processor with the
 * conversion, its own builtin becomes that; vload_half takes a dozen instructions there. */
#ifdef __F16C__
#define HALF_AT(p) as_float8(__builtin_ia32_vcvtph2ps256((short8)(*(__global const short *)(p)))).s0
#else
#define HALF_AT(p) vload_half(0, (__global const half *)(p))
#endif
#define BYTES_16(p) as_uchar16(LOADED(ushort, 8, p))

/* n elements that are aligned to one of them. Clang loads them itself where it was told of the processor: the function is
 * a call there, with PoCL 3.0 and AVX2. */
#if defined(__x86_64__) || defined(__aarch64__)
typedef ushort2 loose_ushort2 ALIGNED(2);
typedef ushort4 loose_ushort4 ALIGNED(2);
typedef ushort8 loose_ushort8 ALIGNED(2);
typedef ushort16 loose_ushort16 ALIGNED(2);
typedef uchar16 loose_uchar16 ALIGNED(1);
#define LOADED(type, n, p) (*(__global const loose_##type##n *)(p))
#else
#define LOADED(type, n, p) vload##n(0, (__global const type *)(p))
#endif

/* Of each byte `bits` bits from `shift` on, as float32. */
#define FIELD(v, shift, bits) NUMBERS(CONVERTED(uint16, (v) >> (uchar)(shift) & (uchar)((1 << (bits)) - 1)))

/* Whole numbers under 2^23 as float32. GPUs convert at a fraction of the rate at which they add. */
#ifdef __NV_CL_C_VERSION
#define NUMBERS(q) (as_float16((q) | 0x4b000000u) - 8388608.0f)
#else
#define NUMBERS(q) CONVERTED(float16, q)
#endif

/* The float16 numbers at p, p + apart and so on, eight at a time: there is an instruction for that. */
#ifdef __F16C__
#define OF_HALVES_8(h) as_float8(__builtin_ia32_vcvtph2ps256(h))
#else
#define OF_HALVES_8(h) vload_half8(0, (const half *)&(h))
#endif
#if TO_AVX512
typedef short shorts_32 __attribute__((ext_vector_type(32)));
typedef shorts_32 loose_shorts_32 ALIGNED(2);
/* Numbers of a, then of b, which is behind it, at eight places: one instruction, which LLVM 14 does not find by itself. */
INLINE short8 eight_of(const shorts_32 a, const shorts_32 b, const short8 i)
{
#if AVX512 || defined(__AVX512BW__)
  typedef short named __attribute__((vector_size(64)));
  const shorts_32 of = (shorts_32)(i, i, i, i);
  const shorts_32 all = __builtin_astype(__builtin_ia32_vpermi2varhi512((named)a, (named)of, (named)b), shorts_32);
  return __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return (short8)(a[i.s0], a[i.s1], a[i.s2], a[i.s3], b[i.s4 - 32], b[i.s5 - 32], b[i.s6 - 32], b[i.s7 - 32]);
#endif
}
#endif

/* The bits of eight of them. */
INLINE short8 eight_halves(bytes_t p, const int apart)
{
#define HALF_BITS(i) *(__global const short *)(p + (i) * apart)
#if TO_AVX512
  if (apart == 2) return as_short8(LOADED(ushort, 8, p));
  if (apart == 18 || apart == 20) { /* 64 bytes have four of them, and are not more than the four blocks */
#define FOUR_BLOCKS(i) *(__global const loose_shorts_32 *)(p + (i) * apart)
    const short n = apart / 2;
    return eight_of(FOUR_BLOCKS(0), FOUR_BLOCKS(4), (short8)(0, n, 2 * n, 3 * n, 32, 32 + n, 32 + 2 * n, 32 + 3 * n));
  }
#endif
  return (short8)(HALF_BITS(0), HALF_BITS(1), HALF_BITS(2), HALF_BITS(3), HALF_BITS(4), HALF_BITS(5), HALF_BITS(6),
                  HALF_BITS(7));
}
INLINE void halves_at(bytes_t p, const int apart, const int count, float *values)
{
  typedef float8 floats ALIGNED(4);
  int g = 0;
  for (; g + 8 <= count; g += 8) {
    const short8 bits = eight_halves(p + g * apart, apart);
    *(floats *)(values + g) = OF_HALVES_8(bits);
  }
  for (; g < count; ++g) values[g] = HALF_AT(p + g * apart);
}
