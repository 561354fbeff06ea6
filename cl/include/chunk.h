/* chunk_t: CHUNK accumulators (1, 2, 4) in one access. SPREAD(to, v) writes its elements to an array,
 * GATHERED(from) reads them from one. */
#include "include/types.h"

#ifndef CHUNK
#error "chunk.h needs CHUNK"
#endif

typedef float4 quad_float32;
typedef uint4 quad_uint32;
typedef ulong2 pair_uint64;
#ifdef cl_khr_fp64
typedef double2 pair_float64;
#endif
#if CHUNK == 4
typedef CAT(quad_, ACC_TYPE) chunk_t;
#define SPREAD(to, v) ((to)[0] = (v).x, (to)[1] = (v).y, (to)[2] = (v).z, (to)[3] = (v).w)
#define GATHERED(from) ((chunk_t)((from)[0], (from)[1], (from)[2], (from)[3]))
#elif CHUNK == 2
typedef CAT(pair_, ACC_TYPE) chunk_t;
#define SPREAD(to, v) ((to)[0] = (v).x, (to)[1] = (v).y)
#define GATHERED(from) ((chunk_t)((from)[0], (from)[1]))
#else
typedef ACC_T chunk_t;
#define SPREAD(to, v) ((to)[0] = (v))
#define GATHERED(from) ((from)[0])
#endif
