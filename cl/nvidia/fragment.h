/* fragment: stores fragments of sums in out, with gemm.h's epilogue.
 *
 * Four neighbouring work-items t = 0 .. 3 hold the same row: columns 2 t and 2 t + 1 of every block of eight columns.
 * Elements of 4 and 8 bytes are stored as such pairs; the four work-items fill whole sectors of 32 bytes. Pairs of
 * 16-bit elements are first exchanged, so that each work-item owns one of four blocks:
 *
 *   before   t: columns 2 t, 2 t + 1 of blocks 0, 1, 2, 3
 *   after    t: columns 0 .. 7 of block t, one store of 16 bytes
 *
 * Pairs of 8-bit elements are exchanged over eight blocks: t has blocks 2 t and 2 t + 1.
 *
 * With complex sums (types.h), columns are those of the real product: 2 j and 2 j + 1 are re and im of the result's
 * column j.
 *
 * Macros: OUT_VECTOR 2: each row of out starts on a multiple of 16 bytes, 1: of two elements, 0: store element by
 * element.
 * Fragments: ptx_mma.h, ptx_wgmma.h.
 */
#include "include/gemm.h"
#include "nvidia/ptx.h"

#ifndef OUT_VECTOR
#error "fragment.h needs OUT_VECTOR"
#endif
#define sum_float32 float
#define sum_uint32 int
#define sum_float64 double
#define sum_complex64 float
typedef CAT(sum_, ACC_TYPE) sum_t; /* as matrix units leave it */

#define OUT_WIDTH BYTES_OF(OUT_TYPE) /* bytes; in #if, 0 for the other types */

/* Transposes 4 x 4 words: word b of work-item t becomes word t of work-item b. */
INLINE uint4 transposed_quad(uint4 w)
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

/* x 2^e, where e is the sum of two exponents of split.h. Two steps, because 2^e alone may leave float32's range. x is a
 * sum of products of float16, so it stays normal after the first. */
INLINE float scaled(const float x, const int e)
{
  return x * as_float((127 + e / 2) << 23) * as_float((127 + e - e / 2) << 23);
}

/* Multiplies the fragments of two rows by 2^(exponent of the row + exponent of the column). rows[0] and rows[8] are the
 * exponents of the rows. Reading them one by one from global memory would take longer than the rest of the store. */
INLINE void scale_fragments(float *acc, __local const int *rows, __local const int *columns, const int blocks)
{
  UNROLL for (int h = 0; h < 2; ++h)
    UNROLL for (int b = 0; b < blocks; ++b)
      UNROLL for (int c = 0; c < 2; ++c) {
        const int column = 8 * b + (int)get_local_id(0) % 4 * 2 + c;
        acc[4 * b + 2 * h + c] = scaled(acc[4 * b + 2 * h + c], rows[8 * h] + columns[column]);
      }
}

/* Takes sums of product z modulo its number (moduli.h), if it has one. */
INLINE void reduce_sums(sum_t *sums, const int count, const long z)
{
  UNROLL for (int i = 0; i < count; ++i) sums[i] = REDUCED(sums[i], z);
}

/* Element (i, j) of the result before it is converted to out's type. */
INLINE ACC_T finished_at(const int i, const int j, const ACC_T sum, RESULT_ARGS)
{
  return finished(sum, alpha, beta, c, (long)i * c_rs + (long)j * c_cs, bias, (long)(BIAS == 1 ? j : i) * bias_stride);
}

#if PLANES == 1
INLINE void store_single(const int i, const int j, const sum_t sum, RESULT_ARGS)
{
  if (i < M && j < N) STORE_OUT(out, (long)i * ldo + j, finished_at(i, j, (ACC_T)sum, RESULT));
}
#endif

/* 16-bit results are rounded in pairs. */
#define OUT_16 (OUT_WIDTH == 2 && PLANES == 1)
#define OUT_8 (OUT_WIDTH == 1)
#if OUT_16 || OUT_8
/* Elements (i, j) and (i2, j2). Outside of out, C and bias are not read. */
INLINE uint packed_results(
    const int i, const int j, const sum_t sum, const int i2, const int j2, const sum_t sum2, RESULT_ARGS)
{
#if HAS_C || BIAS
  const ACC_T low = i < M && j < N ? finished_at(i, j, (ACC_T)sum, RESULT) : ACC_ZERO;
  const ACC_T high = i2 < M && j2 < N ? finished_at(i2, j2, (ACC_T)sum2, RESULT) : ACC_ZERO;
#else
  const ACC_T low = finished_at(i, j, (ACC_T)sum, RESULT);
  const ACC_T high = finished_at(i2, j2, (ACC_T)sum2, RESULT);
#endif
#if OUT_8
  return (uchar)low | (uint)(uchar)high << 8;
#else
  return CAT(packed_, OUT_TYPE)((float)low, (float)high);
#endif
}

/* Columns j and j + 1 of row i. */
INLINE uint packed_pair(const int i, const int j, const sum_t *v, RESULT_ARGS)
{
  return packed_results(i, j, v[0], i, j + 1, v[1], RESULT);
}
#endif

/* Two neighbours at once. */
#define PAIRS (OUT_VECTOR && OUT_WIDTH && PLANES == 1)
#if PAIRS && OUT_16
INLINE void store_two(__global OUT_T *to, const ACC_T first, const ACC_T second)
{
  *(__global uint *)to = CAT(packed_, OUT_TYPE)((float)first, (float)second);
}
#elif PAIRS
typedef struct { OUT_T low, high; } ALIGNED(2 * OUT_WIDTH) out_pair;
INLINE void store_two(__global OUT_T *to, const ACC_T first, const ACC_T second)
{
  out_pair pair;
  STORE_OUT(&pair.low, 0, first);
  STORE_OUT(&pair.high, 0, second);
  *(__global out_pair *)to = pair;
}
#endif

#define WHOLE_CHUNKS (OUT_VECTOR == 2 && (OUT_16 || OUT_8))
#if WHOLE_CHUNKS
#define PER_CHUNK (OUT_8 ? 8 : 4) /* blocks that four work-items exchange */
#define CHUNK_WIDTH (16 / OUT_WIDTH)
#if OUT_8
typedef uchar out_bits;
#else
typedef ushort out_bits;
#endif

/* Stores CHUNK_WIDTH elements from column j on, those within N. Indices of `words` must be constants: otherwise the
 * compiler keeps it in memory, and all stores take half as long again. */
INLINE void store_words(__global OUT_T *row, const int j, const int N, const uint4 w)
{
  __global out_bits *to = (__global out_bits *)row + j;
  const uint words[4] = {w.s0, w.s1, w.s2, w.s3};
  if (j + CHUNK_WIDTH <= N) {
    *(__global uint4 *)to = w;
    return;
  }
  UNROLL for (int e = 0; e < CHUNK_WIDTH; ++e)
    if (j + e < N) to[e] = (out_bits)(words[e * OUT_WIDTH / 4] >> e * OUT_WIDTH % 4 * 8);
}

/* Stores PER_CHUNK blocks of row i from column j on. v: the first of this work-item's sums of the row. */
INLINE void store_chunk(const int i, const int j, const sum_t *v, RESULT_ARGS)
{
  const int at = j + (int)get_local_id(0) % 4 * 2;
  uint pairs[PER_CHUNK];
  UNROLL for (int b = 0; b < PER_CHUNK; ++b) pairs[b] = packed_pair(i, at + 8 * b, v + 4 * b, RESULT);
#if OUT_8
  uint4 w = (uint4)(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16,
                    pairs[4] | pairs[5] << 16, pairs[6] | pairs[7] << 16);
  w = transposed_quad(w);
  w = (uint4)((w.s0 & 0xffff) | w.s1 << 16, (w.s2 & 0xffff) | w.s3 << 16,
              w.s0 >> 16 | (w.s1 & 0xffff0000), w.s2 >> 16 | (w.s3 & 0xffff0000));
#else
  const uint4 w = transposed_quad((uint4)(pairs[0], pairs[1], pairs[2], pairs[3]));
#endif
  if (i < M) store_words(out + (long)i * ldo, j + (int)get_local_id(0) % 4 * CHUNK_WIDTH, N, w);
}
#endif

/* Stores columns j and j + 1 of row i. Of a complex result they are re and im of column j / 2. */
INLINE void store_pair(const int i, const int j, const sum_t *v, RESULT_ARGS)
{
#if PLANES == 2
  if (i < M && j / 2 < N)
    STORE_OUT(out, (long)i * ldo + j / 2, finished_at(i, j / 2, (ACC_T)(v[0], v[1]), RESULT));
#elif PAIRS
  if (i < M && j + 1 < N)
    store_two(
        out + (long)i * ldo + j, finished_at(i, j, (ACC_T)v[0], RESULT), finished_at(i, j + 1, (ACC_T)v[1], RESULT));
  else
    store_single(i, j, v[0], RESULT);
#else
  store_single(i, j, v[0], RESULT);
  store_single(i, j + 1, v[1], RESULT);
#endif
}

/* Stores all fragments of rows i and i + row_step: `blocks` blocks from column j on. */
INLINE void store_fragments(
    const int i, const int row_step, const int j, const sum_t *acc, const int blocks, RESULT_ARGS)
{
  const int paired = (int)get_local_id(0) % 4 * 2;
  int chunked = 0; /* blocks */
  UNROLL for (int h = 0; h < 2; ++h) {
#if WHOLE_CHUNKS
    chunked = blocks / PER_CHUNK * PER_CHUNK;
    UNROLL for (int b = 0; b < chunked; b += PER_CHUNK) store_chunk(i + row_step * h, j + 8 * b, acc + 4 * b + 2 * h, RESULT);
#endif
    UNROLL for (int b = chunked; b < blocks; ++b)
      store_pair(i + row_step * h, j + 8 * b + paired, acc + 4 * b + 2 * h, RESULT);
  }
}
