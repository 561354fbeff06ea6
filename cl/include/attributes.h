/* attributes: compiler attributes and pragmas, each written once.
 *
 * `static inline`, never `inline` alone: in C99 a bare `inline` function has no external definition, so some
 * compilers fail to link it.
 */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("unroll")
#define ONCE _Pragma("unroll 1") /* a loop that is not unrolled */
/* A loop that stays one of numbers. Intel's compiler gathers elements with gaps to vectors, which takes Zen 5 three times as
 * long. Only for CPU devices, whose compilers are clang's. */
#define BY_NUMBERS _Pragma("clang loop vectorize(disable)")
#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#define WORK_GROUP(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))
#define ONE_ITEM WORK_GROUP(1, 1, 1)

/* A vector converted to another type, as convert_T does. PoCL's library for vectors of 256 bits has no function that
 * takes one of 512 (PoCL 3.0 on AVX2). What clang converts by itself needs none. */
#ifdef __NV_CL_C_VERSION
#define CONVERTED(type, v) convert_##type(v)
#else
#define CONVERTED(type, v) __builtin_convertvector(v, type)
#endif
