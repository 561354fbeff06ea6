/* From accumulator fragments to out, through gemm.h's epilogue.
 *
 * Four neighbouring work-items t = 0..3 hold, of one row, columns 2t and 2t+1 of every block of
 * eight columns. Elements of 4 and 8 bytes are stored as such pairs: the four fill whole sectors of 32
 * bytes. Pairs of 16-bit elements are first exchanged, so that each owns one of four blocks:
 *
 *   before   t: columns 2t, 2t+1 of blocks 0, 1, 2, 3
 *   after    t: columns 0 .. 7 of block t, one 16-byte store
 *
 * Where sums are complex (types.h), columns are those of the real product: 2 j and 2 j + 1 make the result's j.
 *
 * Macros: OUT_VECTOR 1: every row of out starts on a multiple of 16 bytes; 0: element by element.
 *         EXPONENTS 1: a result is multiplied by 2^(ROW_EXPONENT(i) + COLUMN_EXPONENT(j)), which the kernel has at
 *         hand, in local memory: read from global memory one by one they would take longer than all the rest.
 */
#include "include/attributes.h"
#include "include/types.h"
#include "include/gemm.h"

#if !defined(OUT_VECTOR) || !defined(EXPONENTS)
#error "fragment.h needs OUT_VECTOR EXPONENTS"
#endif

#define width_float16 2
#define width_bfloat16 2
#define width_float32 4
#define width_int32 4
#define width_uint32 4
#define width_float64 8
#define OUT_WIDTH CAT(width_, OUT_TYPE) /* of other types 0 */

static inline uint exchanged(const uint value, const int distance)
{
  uint other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(other) : "r"(value), "r"(distance));
  return other;
}

/* Word b of work-item t becomes word t of work-item b, a 4 x 4 transpose. */
static inline uint4 transposed_quad(uint4 w)
{
  const bool odd = get_local_id(0) & 1;
  const bool high = get_local_id(0) & 2;
  const uint p = exchanged(odd ? w.s0 : w.s1, 1);
  const uint q = exchanged(odd ? w.s2 : w.s3, 1);
  w = odd ? (uint4)(p, w.s1, q, w.s3) : (uint4)(w.s0, p, w.s2, q);
  const uint r = exchanged(high ? w.s0 : w.s2, 2);
  const uint s = exchanged(high ? w.s1 : w.s3, 2);
  return high ? (uint4)(r, s, w.s2, w.s3) : (uint4)(w.s0, w.s1, r, s);
}

#if EXPONENTS
/* x 2^e in two steps, because 2^e alone may leave float32's range: e is the sum of two exponents of
 * split.h, and x, a sum of products of float16's, stays normal in the first. */
static inline float scaled(const float x, const int e)
{
  return x * as_float((127 + e / 2) << 23) * as_float((127 + e - e / 2) << 23);
}
#define FRAGMENT(i, j, acc) scaled((float)(acc), ROW_EXPONENT(i) + COLUMN_EXPONENT(j))
#else
#define FRAGMENT(i, j, acc) (acc)
#endif
#define FINISHED(i, j, acc)                                                       \
  finished((ACC_T)(FRAGMENT(i, j, acc)), alpha, beta, c, (long)(i) * c_rs + (long)(j) * c_cs, bias, \
           (long)(BIAS == 1 ? (j) : (i)) * bias_stride)

/* The value of (i, j); outside of out, where nothing is stored, nothing is read for it either. */
#if HAS_C || BIAS
#define VALUE(i, j, acc) ((i) < M && (j) < N ? FINISHED(i, j, acc) : ACC_ZERO)
#else
#define VALUE(i, j, acc) FINISHED(i, j, acc)
#endif

#define STORE_SINGLE(i, j, acc)                                                     \
  do {                                                                              \
    if ((i) < M && (j) < N) STORE_OUT(out, (long)(i) * ldo + (j), FINISHED(i, j, acc)); \
  } while (0)

#if OUT_VECTOR && OUT_WIDTH == 2 && PLANES == 1
/* Two floats as two 16-bit elements, rounded to nearest even. */
static inline uint packed_float16(const float low, const float high)
{
  uint word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
static inline uint packed_bfloat16(const float low, const float high)
{
  uint word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
#define PACKED(i, j, v) \
  CAT(packed_, OUT_TYPE)((float)VALUE(i, j, (v)[0]), (float)VALUE(i, (j) + 1, (v)[1]))

static inline void store_words(__global OUT_T *row, const int j, const int N, const uint4 w)
{
  __global ushort *to = (__global ushort *)row + j;
  const uint words[4] = {w.s0, w.s1, w.s2, w.s3};
  if (j + 8 <= N) {
    *(__global uint4 *)to = w;
    return;
  }
  for (int e = 0; e < 8; ++e)
    if (j + e < N) to[e] = (ushort)(words[e / 2] >> e % 2 * 16);
}

/* Four blocks of row i from column j; v: the first of the row's values. */
#define STORE_BLOCKS(i, j, v)                                                                  \
  do {                                                                                         \
    const int at_ = (j) + (int)get_local_id(0) % 4 * 2;                                        \
    uint4 w_;                                                                                  \
    w_.s0 = PACKED(i, at_, (v));                                                               \
    w_.s1 = PACKED(i, at_ + 8, (v) + 4);                                                       \
    w_.s2 = PACKED(i, at_ + 16, (v) + 8);                                                      \
    w_.s3 = PACKED(i, at_ + 24, (v) + 12);                                                     \
    w_ = transposed_quad(w_);                                                                  \
    if ((i) < M) store_words(out + (long)(i) * ldo, (j) + (int)get_local_id(0) % 4 * 8, N, w_); \
  } while (0)
#define BLOCKS_AT_ONCE 4
#else
#if PLANES == 2 /* a pair is the two parts of a complex number, of column j / 2 */
#define STORE_PAIR(i, j, v)                                                                       \
  do {                                                                                            \
    if ((i) < M && (j) / 2 < N) {                                                                 \
      const ACC_T both_ = (ACC_T)(FRAGMENT(i, j, (v)[0]), FRAGMENT(i, (j) + 1, (v)[1]));          \
      STORE_OUT(out, (long)(i) * ldo + (j) / 2,                                                   \
                finished(both_, alpha, beta, c, (long)(i) * c_rs + (long)((j) / 2) * c_cs, bias,  \
                         (long)(BIAS == 1 ? (j) / 2 : (i)) * bias_stride));                       \
    }                                                                                             \
  } while (0)
#elif OUT_VECTOR && (OUT_WIDTH == 4 || OUT_WIDTH == 8)
typedef struct { OUT_T low, high; } ALIGNED(2 * OUT_WIDTH) out_pair;
#define STORE_PAIR(i, j, v)                                                  \
  do {                                                                       \
    if ((i) < M && (j) + 1 < N) {                                            \
      out_pair pair_;                                                        \
      STORE_OUT(&pair_.low, 0, FINISHED(i, j, (v)[0]));                      \
      STORE_OUT(&pair_.high, 0, FINISHED(i, (j) + 1, (v)[1]));               \
      *(__global out_pair *)(out + (long)(i) * ldo + (j)) = pair_;           \
    } else {                                                                 \
      STORE_SINGLE(i, j, (v)[0]);                                            \
    }                                                                        \
  } while (0)
#else
#define STORE_PAIR(i, j, v)                \
  do {                                     \
    STORE_SINGLE(i, j, (v)[0]);            \
    STORE_SINGLE(i, (j) + 1, (v)[1]);      \
  } while (0)
#endif
#define STORE_BLOCKS(i, j, v)                                    \
  do {                                                           \
    const int at_ = (j) + (int)get_local_id(0) % 4 * 2;          \
    STORE_PAIR(i, at_, v);                                       \
  } while (0)
#define BLOCKS_AT_ONCE 1
#endif

/* All fragments of rows i and i + 8: `blocks` blocks from column j on. */
#define STORE_FRAGMENTS(i, j, acc, blocks) STORE_FRAGMENT_ROWS(i, 8, j, acc, blocks)

/* The same of rows i and i + row_step. */
#define STORE_FRAGMENT_ROWS(i, row_step, j, acc, blocks)                            \
  do {                                                                              \
    UNROLL for (int h_ = 0; h_ < 2; ++h_) {                              \
      const int i_ = (i) + (row_step) * h_;                                         \
      UNROLL for (int b_ = 0; b_ < (blocks); b_ += BLOCKS_AT_ONCE)       \
        STORE_BLOCKS(i_, (j) + 8 * b_, (acc) + 4 * b_ + 2 * h_);                    \
    }                                                                               \
  } while (0)
