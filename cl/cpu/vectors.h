/* Vectors for CPU devices, where one work-item does a whole work-group's work with vector registers.
 *
 * Macros: LANES, reals in a vector: 2, 4, 8, 16; PREFETCHES, 1: the compiler has clang's __builtin_prefetch; those
 * of types.h.
 *
 * Defines REAL, the type of the real numbers in an accumulator (PLANES of them); VEC, a vector of LANES reals, and
 * LOOSE_VEC, the same aligned to 4 bytes only; ONE_WIDE_ITEM, the attributes of entries; PREFETCH(p), for
 * the cache line of p; FMA_VEC(x, y, z) = x y + z. If REPRODUCIBLE is 1 that is one FMA. Clang before version 16 has no
 * builtin for it in vectors. There the compiler is told to fuse, and the self-check sees whether it does.
 *
 * Vectors are read and written through pointers. On some drivers vload and vstore are function calls, and a call
 * in an inner loop spills every register.
 */
#include "include/types.h"
#include "cpu/target.h"

#if !defined(LANES) || !defined(PREFETCHES)
#error "vectors.h needs LANES PREFETCHES"
#endif

#define real_uint32 uint
#define real_uint64 ulong
#define real_float32 float
#define real_float64 double
#define real_complex64 float
#define real_complex128 double
#define REAL_NAME CAT(real_, ACC_TYPE)

/* float16 to float by integer arithmetic, which compilers vectorize; vload_half becomes a call. The result is exact,
 * and no denormal floats occur. */
#define DEFINE_WIDENED(name, floats, uints, ushorts)                                              \
  INLINE floats name(const ushorts x)                                                             \
  {                                                                                               \
    const uints bits = CAT(convert_, uints)(x & (ushorts)(0x7fff)) << 13;                         \
    const floats tiny = CAT(as_, floats)(bits + (113u << 23)) - as_float(113u << 23);             \
    const uints up = bits < (uints)(31u << 23) ? (uints)(112u << 23) : (uints)(224u << 23);       \
    const uints value = bits < (uints)(1u << 23) ? CAT(as_, uints)(tiny) : bits + up;             \
    return CAT(as_, floats)(value | CAT(convert_, uints)(x & (ushorts)(0x8000)) << 16);           \
  }
DEFINE_WIDENED(widened, float, uint, ushort)
#undef fetch_float16
#define fetch_float16(p, i) widened(((__global const ushort *)(p))[i])
#if defined(__F16C__) && SAME_TYPE(ACC_TYPE, float32) /* one instruction; vstore_half becomes a call too */
#undef put_float16
#define put_float16(p, i, v) (((__global short *)(p))[i] = as_short8(__builtin_ia32_vcvtps2ph((float4)(v), 0)).s0)
#endif

typedef REAL_NAME REAL;
typedef CAT(REAL_NAME, LANES) VEC;
typedef VEC LOOSE_VEC ALIGNED(4);

/* A vector that is wider than the registers makes some compilers abort (LLVM 14). */
#define IS_LONG(type) (SAME_TYPE(type, uint64) || SAME_TYPE(type, float64) || SAME_TYPE(type, complex128))
#define VEC_BITS (LANES * (IS_LONG(ACC_TYPE) ? 64 : 32))
#if TARGET_BITS && VEC_BITS > TARGET_BITS
#error "LANES makes vectors that are wider than the registers of the processor that this is compiled for"
#endif

/* Compilers that prefer half of AVX-512's width use all of it in functions with this attribute. */
#if defined(__AVX512F__) && VEC_BITS == 512
#define FULL_WIDTH __attribute__((min_vector_width(VEC_BITS)))
#else
#define FULL_WIDTH
#endif
#define CACHE_LINE 64
#if PREFETCHES
#define PREFETCH(p) __builtin_prefetch((const void *)(ulong)(p))
#else
#define PREFETCH(p)
#endif
#define ONE_WIDE_ITEM ONE_ITEM FULL_WIDTH
#if REPRODUCIBLE && !FMA_IS_CLANGS
#define FMA_VEC(x, y, z) fma(x, y, z)
#else
#pragma OPENCL FP_CONTRACT ON
#define FMA_VEC(x, y, z) ((x) * (y) + (z))
#endif
