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

#define BITS_(width) bits_##width
#define BITS(width) BITS_(width)
__kernel void BITS(TARGET_BITS)(void) {}
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
