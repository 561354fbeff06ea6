/* extras: the arguments of C and of the bias, for programs that read them.
 *
 * Drivers take time for each argument, so a program has none that it never reads. Then its numbers are constants, and C_AT and
 * BIAS_AT, the pointer to an element, are null. EXTRAS_BEGIN declares c and bias, which begin at these elements: an entry
 * that uses RESULT of gemm.h has this or GEMM_BEGIN.
 *
 * Macros: HAS_C, BIAS, LISTED of gemm.h; those of types.h.
 */
#include "include/types.h"

#if !defined(HAS_C) || !defined(BIAS) || !defined(LISTED)
#error "extras.h needs HAS_C BIAS LISTED"
#endif

/* In a list: what GEMM_BEGIN replaces by that of the work-group's own product. */
#if LISTED
#define OF_ALL(name) name##_of_all
#else
#define OF_ALL(name) name
#endif
#if HAS_C
#define C_ARGS , __global const C_T *all_c, const long c_offset, const long OF_ALL(c_rs), const long OF_ALL(c_cs)
#define C_AT(offset) (all_c + c_offset + (offset))
#else
#define C_ARGS
#define C_AT(offset) 0
enum { OF_ALL(c_rs) = 0, OF_ALL(c_cs) = 0 };
#endif
#if BIAS
#define BIAS_ARGS , __global const BIAS_T *all_bias, const long bias_offset, const long OF_ALL(bias_stride)
#define BIAS_AT(offset) (all_bias + bias_offset + (offset))
#else
#define BIAS_ARGS
#define BIAS_AT(offset) 0
enum { OF_ALL(bias_stride) = 0 };
#endif
#define EXTRAS_BEGIN(at_c, at_bias)               \
  __global const C_T *c = C_AT(at_c);             \
  __global const BIAS_T *bias = BIAS_AT(at_bias); \
  (void)c, (void)bias
