/* amx, last step: stores a block of sums to out, through the epilogue. */
#include "include/gemm.h"
#include "cpu/vectors.h"
#include "cpu/amx_tiles.h"

/* 1: rows of 16 elements at a time. The epilogue is at most relu(alpha * acc + bias), out has one of the usual types. */
#define vector_of_float32 1
#define vector_of_bfloat16 2
#define vector_of_int8 3
#define vector_of_uint8 3
#define vector_of_int32 4
#define vector_of_uint32 4
#define OUT_KIND CAT(vector_of_, OUT_TYPE)
#define IS_FLOAT SAME_TYPE(float32, ACC_TYPE)
#define VECTOR_STORE                                                                          \
  (!HAS_C && GATE != 2 && (IS_FLOAT ? ACTIVATION <= 1 && (OUT_KIND == 1 || OUT_KIND == 2)     \
                                    : !ACTIVATION && OUT_KIND >= 3))

#if VECTOR_STORE
typedef CAT(elem_, OUT_TYPE) LOOSE_ROW __attribute__((ext_vector_type(16), aligned(1)));

INLINE void store_vector(__global OUT_T *out, const VEC x)
{
#if OUT_KIND == 1
  *(__global LOOSE_ROW *)out = x;
#elif OUT_KIND == 2 /* as to_bfloat16 (types.h) */
  const uint16 bits = as_uint16(x), up = bits >> 16;
  const uint16 value = (bits & 0x7fffffff) > 0x7f800000 ? up | 0x40 : (bits + 0x7fff + (up & 1)) >> 16;
  *(__global LOOSE_ROW *)out = __builtin_convertvector(value, ushort16);
#elif OUT_KIND == 3
  *(__global LOOSE_ROW *)out = __builtin_convertvector(x, LOOSE_ROW);
#else
  *(__global LOOSE_ROW *)out = __builtin_convertvector(x, LOOSE_ROW);
#endif
}

/* `rows` rows of BLOCK sums from column j on. */
INLINE void store_rows(__local const ACC_T *sums, const int i, const int j, const int rows, RESULT_ARGS)
{
  for (int first = 0; first < BLOCK; first += TILE) {
    VEC shift = (VEC)(0);
#if BIAS == 1
    for (int s = 0; s < TILE; ++s) shift[s] = LOAD_BIAS(bias, (long)(j + first + s) * bias_stride);
#endif
    for (int r = 0; r < rows; ++r) {
      VEC x = alpha * *(__local const VEC *)(sums + r * BLOCK + first);
#if BIAS == 2
      shift = (VEC)(LOAD_BIAS(bias, (long)(i + r) * bias_stride));
#endif
#if BIAS
      x += shift;
#endif
#if ACTIVATION == 1
      x = x < 0 ? (VEC)(0) : x; /* a comparison: NaN stays NaN */
#endif
      store_vector(out + (long)(i + r) * ldo + j + first, x);
    }
  }
}
#endif

/* Stores the block at (i, j), as far as it is within the result. */
INLINE void store_sums(__local const ACC_T *sums, const int i, const int j, RESULT_ARGS)
{
  const int rows = min(BLOCK, M - i), columns = min(BLOCK, N - j);
#if VECTOR_STORE
  if (columns == BLOCK) {
    store_rows(sums, i, j, rows, RESULT);
    return;
  }
#endif
  for (int r = 0; r < rows; ++r)
    for (int s = 0; s < columns; ++s) STORE_RESULT(i + r, j + s, sums[r * BLOCK + s], RESULT);
}
