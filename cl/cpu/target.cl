/* target: tells what the compiler was told about the processor (target.h), by the names of its kernels.
 *
 * pyclmm/opencl/processor.py builds it once for each driver and reads the names. Nothing runs.
 *
 * Macros: ASKED, a number that no earlier build had, so that no cache answers.
 */
#include "cpu/target.h"

#if !defined(ASKED)
#error "target.cl needs ASKED"
#endif

#if TARGET_BITS == 512
__kernel void bits_512(void) {}
#elif TARGET_BITS == 256
__kernel void bits_256(void) {}
#elif TARGET_BITS == 128
__kernel void bits_128(void) {}
#else
__kernel void bits_0(void) {}
#endif
#ifdef __AVX512F__
__kernel void has_avx512f(void) {}
#endif
#ifdef __AVX2__
__kernel void has_avx2(void) {}
#endif
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
__kernel void has_fma(void) {}
#endif
#ifdef __ARM_NEON
__kernel void has_neon(void) {}
#endif
#ifdef __ARM_FEATURE_SVE
__kernel void has_sve(void) {}
#endif
