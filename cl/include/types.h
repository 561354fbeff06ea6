/* Element types: how each is stored, loaded, added and written.
 *
 * Macros (NumPy's names of types; a missing one is an error):
 *   A_TYPE B_TYPE C_TYPE BIAS_TYPE OUT_TYPE   bool int8..int64 uint8..uint64 float16 bfloat16
 *                                             float32 float64 complex64 complex128
 *   ACC_TYPE                                  uint32 uint64 float32 float64 complex64 complex128
 *   CONJ_A CONJ_B                             1: the operand is conjugated as it is loaded
 *   REPRODUCIBLE                              1: MAC is made of FMA, in a fixed order; 2: so, and floats by soft_fma.h;
 *                                             0: the compiler may fuse or not
 *   SOFT_FLOAT64                              1: float64 is computed by soft_double.h, and a double is its bits, a ulong
 *   DOT_BYTES                                 1: an element is a word of four signed bytes; MAC adds two words' dot product
 *
 * Defines A_T, B_T, C_T, BIAS_T, OUT_T (storage) and ACC_T; LOAD_A(p, i) and so on, element i of a
 * storage pointer as ACC_T; STORE_OUT(p, i, v); MAC(acc, x, y) = acc + x y, with x of A and y of B;
 * MUL(x, y); SCALE(s, v), v times alpha or beta; ACC_ZERO. Unless REPRODUCIBLE is 0: FMA(x, y, z) = x y + z, rounded once,
 * for real numbers; SCALED_SUM(s, v, t) = s v + t; UNSIGNED_ZERO(v), v with +0 for -0.
 *
 * Integers are added as unsigned: C defines only unsigned overflow, and modulo 2^n the bits are the same.
 * float16 and bfloat16 are storage types only: loads and stores convert, so a device needs no cl_khr_fp16.
 */
#include "include/attributes.h"
#include "include/soft_fma.h"
#include "include/soft_double.h"
#include "include/dot_bytes.h"

#if !defined(A_TYPE) || !defined(B_TYPE) || !defined(C_TYPE) || !defined(BIAS_TYPE) || \
    !defined(OUT_TYPE) || !defined(ACC_TYPE) || !defined(CONJ_A) || !defined(CONJ_B) || \
    !defined(REPRODUCIBLE) || !defined(SOFT_FLOAT64) || !defined(DOT_BYTES)
#error "types.h needs A_TYPE B_TYPE C_TYPE BIAS_TYPE OUT_TYPE ACC_TYPE CONJ_A CONJ_B REPRODUCIBLE SOFT_FLOAT64 DOT_BYTES"
#endif

#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define CAT3(x, y, z) CAT(CAT(x, y), z)

/* SAME_TYPE(x, y), for #if: whether x and y name the same type. One of them must be an accumulator's type. */
#define number_uint32 1
#define number_uint64 2
#define number_float32 3
#define number_float64 4
#define number_complex64 5
#define number_complex128 6
#define SAME_TYPE(x, y) (CAT(number_, x) == CAT(number_, y))

/* Bytes of an element, as a number that #if reads; 0 there for the types that are not listed. */
#define bytes_int8 1
#define bytes_uint8 1
#define bytes_float16 2
#define bytes_bfloat16 2
#define bytes_float32 4
#define bytes_int32 4
#define bytes_uint32 4
#define bytes_float64 8
#define BYTES_OF(type) CAT(bytes_, type)

#if SOFT_FLOAT64
typedef ulong elem_float64;
typedef ulong2 elem_complex128;
#elif defined(cl_khr_fp64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double elem_float64;
typedef double2 elem_complex128;
#endif
typedef uchar elem_bool;
typedef char elem_int8;
typedef short elem_int16;
typedef int elem_int32;
typedef long elem_int64;
typedef uchar elem_uint8;
typedef ushort elem_uint16;
typedef uint elem_uint32;
typedef ulong elem_uint64;
typedef half elem_float16;
typedef ushort elem_bfloat16;
typedef float elem_float32;
typedef float2 elem_complex64;

typedef CAT(elem_, A_TYPE) A_T;
typedef CAT(elem_, B_TYPE) B_T;
typedef CAT(elem_, C_TYPE) C_T;
typedef CAT(elem_, BIAS_TYPE) BIAS_T;
typedef CAT(elem_, OUT_TYPE) OUT_T;
typedef CAT(elem_, ACC_TYPE) ACC_T;

/* form_<type>: what decides how such elements are loaded, converted and stored. */
#define form_bool bool
#define form_int8 whole
#define form_int16 whole
#define form_int32 whole
#define form_int64 whole
#define form_uint8 whole
#define form_uint16 whole
#define form_uint32 whole
#define form_uint64 whole
#define form_float16 float16
#define form_bfloat16 bfloat16
#define form_float32 real
#define form_float64 real
#define form_complex64 complex64
#define form_complex128 complex128
#define FORM(type) CAT(form_, type)

/* fetch_<form>(p, i): element i as a type that has arithmetic in C. */
#define fetch_bool(p, i) ((uint)((p)[i] != 0))
#define fetch_whole(p, i) ((p)[i])
#define fetch_float16(p, i) vload_half(i, p)
#define fetch_bfloat16(p, i) as_float((uint)(p)[i] << 16)
#define fetch_real(p, i) ((p)[i])
#define fetch_complex64(p, i) ((p)[i])
#define fetch_complex128(p, i) ((p)[i])

/* acc_<accumulator>_<class>(x): a fetched value as an accumulator. The class is real or pair (complex). */
#define class_bool real
#define class_whole real
#define class_float16 real
#define class_bfloat16 real
#define class_real real
#define class_complex64 pair
#define class_complex128 pair
#define acc_uint32_real(x) ((uint)(x))
#define acc_uint64_real(x) ((ulong)(x))
#define acc_float32_real(x) ((float)(x))
#if SOFT_FLOAT64 /* no other type is converted to it */
#define acc_float64_real(x) (x)
#define acc_complex128_pair(x) (x)
#else
#define acc_float64_real(x) ((double)(x))
#define acc_complex128_pair(x) convert_double2(x)
#endif
#define acc_complex64_real(x) ((float2)((float)(x), 0.0f))
#define acc_complex128_real(x) ((double2)((double)(x), 0.0))
#define acc_complex64_pair(x) convert_float2(x)

#define LOAD(type, p, i) \
  CAT(CAT3(acc_, ACC_TYPE, _), CAT(class_, FORM(type)))(CAT(fetch_, FORM(type))(p, i))
#if CONJ_A
#define LOAD_A(p, i) conjugate(LOAD(A_TYPE, p, i))
#else
#define LOAD_A(p, i) LOAD(A_TYPE, p, i)
#endif
#if CONJ_B
#define LOAD_B(p, i) conjugate(LOAD(B_TYPE, p, i))
#else
#define LOAD_B(p, i) LOAD(B_TYPE, p, i)
#endif
#define LOAD_C(p, i) LOAD(C_TYPE, p, i)
#define LOAD_BIAS(p, i) LOAD(BIAS_TYPE, p, i)
#define conjugate(v) ((ACC_T)((v).x, NEGATED((v).y)))

/* The upper half of a float, rounded to nearest even. NaN stays NaN. */
INLINE ushort to_bfloat16(float x)
{
  const uint bits = as_uint(x);
  if (x != x) return (ushort)(bits >> 16 | 0x40);
  return (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* put_<form>(p, i, v): stores v as element i of out. */
#define put_bool(p, i, v) ((p)[i] = (v) != 0)
#define put_whole(p, i, v) ((p)[i] = (OUT_T)(v))
#define put_float16(p, i, v) vstore_half_rte(v, i, p)
#define put_bfloat16(p, i, v) ((p)[i] = to_bfloat16((float)(v)))
#define put_real(p, i, v) ((p)[i] = (OUT_T)(v))
#define put_complex64(p, i, v) ((p)[i] = convert_float2(v))
#if SOFT_FLOAT64
#define put_complex128(p, i, v) ((p)[i] = (v))
#else
#define put_complex128(p, i, v) ((p)[i] = convert_double2(v))
#endif

/* converted_<form>(v): v, an ACC_T, as put_<form> takes it. */
#define converted_bool(v) NOT_ZERO(v)
#define converted_whole(v) WHOLE(REAL_PART(v))
#define converted_float16(v) REAL_PART(v)
#define converted_bfloat16(v) REAL_PART(v)
#define converted_real(v) REAL_PART(v)
#define converted_complex64(v) (v)
#define converted_complex128(v) (v)

#define STORE_OUT(p, i, v) CAT(put_, FORM(OUT_TYPE))(p, i, v)

/* Of real numbers: sum, product, x < 0 (not NaN), -x. */
#if SOFT_FLOAT64
#define PLUS(x, y) soft_double_fma(x, SOFT_ONE, y)
#define TIMES(x, y) soft_double_fma(x, y, SOFT_SIGN)
#define IS_NEGATIVE(x) soft_double_negative(x)
#define NEGATED(x) ((x) ^ SOFT_SIGN)
#define IS_ZERO(x) (((x) << 1) == 0)
#define CONSTANT(x, bits) bits##ul
#else
#define PLUS(x, y) ((x) + (y))
#define TIMES(x, y) ((x) * (y))
#define IS_NEGATIVE(x) ((x) < 0)
#define NEGATED(x) (-(x))
#define IS_ZERO(x) ((x) == 0)
#define CONSTANT(x, bits) ((ACC_T)CAT(constant_, ACC_TYPE)(x))
#endif
/* A float has its suffix: compilers warn of a constant of type double on a device without cl_khr_fp64. */
#define constant_float32(x) x##f
#define constant_float64(x) x

/* Arithmetic. The compiler may fuse acc + x * y. On some CPU drivers mad() and fma() are function calls and cost
 * ten times as much. Where clang was told of a processor with the instruction, its own builtin becomes that. */
#if REPRODUCIBLE || SOFT_FLOAT64
#if SOFT_FLOAT64
#define fma_float64(x, y, z) soft_double_fma(x, y, z)
#elif REPRODUCIBLE == 2
#define fma_float32(x, y, z) soft_fma(x, y, z)
#define fma_float64(x, y, z) fma(x, y, z)
#elif defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMA_IS_CLANGS 1
#define fma_float32(x, y, z) __builtin_fmaf(x, y, z)
#define fma_float64(x, y, z) __builtin_fma(x, y, z)
#else
#define fma_float32(x, y, z) fma(x, y, z)
#define fma_float64(x, y, z) fma(x, y, z)
#endif
#define fma_complex64 fma_float32
#define fma_complex128 fma_float64
#define FMA(x, y, z) CAT(fma_, ACC_TYPE)(x, y, z)
#define times_pair(u, v)                                \
  ((ACC_T)(FMA(NEGATED((u).y), (v).y, TIMES((u).x, (v).x)), FMA((u).y, (v).x, TIMES((u).x, (v).y))))
#define mac_pair(acc, u, v)                                         \
  ((ACC_T)(FMA(NEGATED((u).y), (v).y, FMA((u).x, (v).x, (acc).x)),  \
           FMA((u).y, (v).x, FMA((u).x, (v).y, (acc).y))))
#define mac_real(acc, x, y) FMA(x, y, acc)
#define scaled_sum_pair(s, v, t) \
  (IS_ZERO((s).y) ? (ACC_T)(FMA((s).x, (v).x, (t).x), FMA((s).x, (v).y, (t).y)) : mac_pair(t, s, v))
#define scaled_sum_real(s, v, t) FMA(s, v, t)
#define SCALED_SUM(s, v, t) CAT(scaled_sum_, class_acc)(s, v, t)
/* +0 for -0. On bits, because rusticl's compiler takes x + 0 for x. */
#define unsigned_zero_float32(x) as_float(as_uint(x) == 0x80000000u ? 0u : as_uint(x))
#if SOFT_FLOAT64
#define unsigned_zero_float64(x) ((x) == SOFT_SIGN ? 0ul : (x))
#else
#define unsigned_zero_float64(x) as_double(as_ulong(x) == 1ul << 63 ? 0ul : as_ulong(x))
#endif
#define unsigned_zero_complex64(v) ((float2)(unsigned_zero_float32((v).x), unsigned_zero_float32((v).y)))
#define unsigned_zero_complex128(v) ((elem_complex128)(unsigned_zero_float64((v).x), unsigned_zero_float64((v).y)))
#define UNSIGNED_ZERO(x) CAT(unsigned_zero_, ACC_TYPE)(x)
#else
#define times_pair(u, v) ((ACC_T)((u).x * (v).x - (u).y * (v).y, (u).x * (v).y + (u).y * (v).x))
#define mac_pair(acc, u, v) \
  ((ACC_T)((acc).x + (u).x * (v).x - (u).y * (v).y, (acc).y + (u).x * (v).y + (u).y * (v).x))
#if DOT_BYTES
#define mac_real(acc, x, y) dot_signed_bytes(x, y, acc)
#else
#define mac_real(acc, x, y) ((acc) + (x) * (y))
#endif
#endif
/* A real scalar multiplies the real and the imaginary part separately: 0 i times infinity would be NaN. */
#define scale_pair(s, v) (IS_ZERO((s).y) ? (ACC_T)(TIMES((s).x, (v).x), TIMES((s).x, (v).y)) : times_pair(s, v))
#define scale_real(s, v) TIMES(s, v)
#define times_real(x, y) TIMES(x, y)
#define add_pair(u, v) ((ACC_T)(PLUS((u).x, (v).x), PLUS((u).y, (v).y)))
#define add_real(x, y) PLUS(x, y)
#define ADD(x, y) CAT(add_, class_acc)(x, y)
#define class_acc CAT(class_, FORM(ACC_TYPE))
#define planes_real 1
#define planes_pair 2
#define PLANES CAT(planes_, class_acc) /* real numbers in an accumulator */
#define MUL(x, y) CAT(times_, class_acc)(x, y)
#define SCALE(s, v) CAT(scale_, class_acc)(s, v)
#define MAC(acc, x, y) CAT(mac_, class_acc)(acc, x, y)
#define ACC_ZERO ((ACC_T)(0))

/* For converted_<form>. */
#if PLANES == 2
#define REAL_PART(v) ((v).x)
#define NOT_ZERO(v) ((v).x != 0 || (v).y != 0)
#else
#define REAL_PART(v) (v)
#define NOT_ZERO(v) ((v) != 0)
#endif
#if SAME_TYPE(ACC_TYPE, uint64)
#define WHOLE(x) (x)
#else
#define WHOLE(x) ((x) < 0 ? (ulong)(long)(x) : (ulong)(x)) /* neither conversion takes every float */
#endif
