/* attributes: what a compiler is told besides OpenCL C, each spelt once.
 *
 * `static inline`, never `inline` alone: C99 gives an inline function no definition for other compilers to link.
 */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("unroll")
#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#define WORK_GROUP(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))
#define ONE_ITEM WORK_GROUP(1, 1, 1)
