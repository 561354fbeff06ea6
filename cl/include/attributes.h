/* attributes: compiler attributes and pragmas, each written once.
 *
 * `static inline`, never `inline` alone: in C99 a bare `inline` function has no external definition, so some
 * compilers fail to link it.
 */
/* AVX512 is 1 where functions are compiled for a processor with AVX-512, of which clang was not told. They pass vectors of
 * 512 bits to each other and to no function of the library. PoCL 3.0 puts what asks for its work-group into functions of its
 * own, which are compiled without: so an entry asks, and passes the answer to a function that is not inlined. */
#if AVX512
#define FOR_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define WORK_OF_ENTRY static __attribute__((noinline, min_vector_width(512))) FOR_TARGET
#else
#define FOR_TARGET
#define WORK_OF_ENTRY INLINE
#endif
#if defined(__AVX512F__) || AVX512
#define HAS_AVX512 1
#else
#define HAS_AVX512 0
#endif
/* 1 too where clang compiles a CPU's kernel to SPIR-V, knows of no processor, and the driver's vectors have 512 bits. */
#if HAS_AVX512 || defined(__SPIR64__) && defined(PREFETCHES) && LANES == 16
#define TO_AVX512 1
#endif
/* Functions of vectors that the processor's registers do not hold are part of their callers: which registers they would
 * be passed in does not matter. PoCL prints that it warns. */
#ifdef __x86_64__
#pragma clang diagnostic ignored "-Wpsabi"
#endif
#define INLINE static inline __attribute__((always_inline)) FOR_TARGET
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
