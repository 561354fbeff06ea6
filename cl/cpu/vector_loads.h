/* Vectors of an operand's elements, as vectors of the accumulator's reals.
 *
 * Macros: those of vectors.h. Defines for A, and likewise for B:
 *   A_REAL        what a pointer to its real numbers points to: the element itself, or a part of a complex one
 *   REAL_A(p, i)  number i as REAL
 *   VEC_A(p)      LANES numbers from p on as VEC; p may be aligned to one element only
 *
 * Narrower elements are widened in registers, so that only their own bytes are read.
 * Preconditions: complex elements, and those of 32 and 64 bits, have as many bits as ACC_T.
 */
#include "cpu/vectors.h"

#define LANES_OF(type) CAT(type, LANES)
typedef LANES_OF(char) LOOSE_CHARS ALIGNED(1);
typedef LANES_OF(uchar) LOOSE_UCHARS ALIGNED(1);
typedef LANES_OF(short) LOOSE_SHORTS ALIGNED(2);
typedef LANES_OF(ushort) LOOSE_USHORTS ALIGNED(2);
#define LOOSE(type, p) (*(__global const type *)(p))

#if defined(__F16C__) && LANES == 8 /* one instruction where there would be 13 */
#define widened_vec(x) __builtin_ia32_vcvtph2ps256(as_short8(x))
#elif HAS_AVX512 && LANES == 16
#define widened_vec(x) as_float16(__builtin_ia32_vcvtph2ps512_mask(as_short16(x), (float16)(0), (ushort)~0, 4))
#else
DEFINE_WIDENED(widened_vec, LANES_OF(float), LANES_OF(uint), LANES_OF(ushort))
#endif

/* convert_uint of a negative number need not keep its low bits, convert_int does. */
#define AS_UINTS(x) LANES_OF(as_uint)(CONVERTED(LANES_OF(int), x))
#define vec_bool(p) AS_UINTS((LOOSE(LOOSE_UCHARS, p) != (LANES_OF(uchar))(0)) & (LANES_OF(char))(1))
#define vec_int8(p) AS_UINTS(LOOSE(LOOSE_CHARS, p))
#define vec_uint8(p) AS_UINTS(LOOSE(LOOSE_UCHARS, p))
#define vec_int16(p) AS_UINTS(LOOSE(LOOSE_SHORTS, p))
#define vec_uint16(p) AS_UINTS(LOOSE(LOOSE_USHORTS, p))
#define vec_float16(p) widened_vec(LOOSE(LOOSE_USHORTS, p))
#define vec_bfloat16(p) LANES_OF(as_float)(CONVERTED(LANES_OF(uint), LOOSE(LOOSE_USHORTS, p)) << 16)
#define vec_int32(p) LOOSE(LOOSE_VEC, p)
#define vec_uint32(p) LOOSE(LOOSE_VEC, p)
#define vec_int64(p) LOOSE(LOOSE_VEC, p)
#define vec_uint64(p) LOOSE(LOOSE_VEC, p)
#define vec_float32(p) LOOSE(LOOSE_VEC, p)
#define vec_float64(p) LOOSE(LOOSE_VEC, p)

#if PLANES == 2
typedef REAL A_REAL, B_REAL;
#define REAL_A(p, i) ((p)[i])
#define REAL_B(p, i) ((p)[i])
#define VEC_A(p) LOOSE(LOOSE_VEC, p)
#define VEC_B(p) LOOSE(LOOSE_VEC, p)
#else
typedef A_T A_REAL;
typedef B_T B_REAL;
#define REAL_A(p, i) LOAD_A(p, i)
#define REAL_B(p, i) LOAD_B(p, i)
#define VEC_A(p) CAT(vec_, A_TYPE)(p)
#define VEC_B(p) CAT(vec_, B_TYPE)(p)
#endif
