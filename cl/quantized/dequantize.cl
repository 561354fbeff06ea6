/* dequantize: quantised weights as a dense matrix of A's type, for the product that another family computes.
 *
 *   b        N rows of bytes, ldb apart                  weights   N rows of K elements, ld apart
 *   +----------------+---------+                         +--------------------------+
 *   | 32 | 32 | ...  | scales  |   weights32 (formats/)  | 32      | 32      | ...  |
 *   +----------------+---------+            ->           +--------------------------+
 *
 * In the third dimension are matrices, `apart` bytes from one to the next; their numbers lie one behind the other.
 *
 * A work-group of ITEMS work-items turns ITEMS runs of 32 weights of row j into numbers, a run each. These pass through local
 * memory, so that neighbouring work-items store neighbouring words. With ITEMS 1 a work-item turns `span` runs of row j.
 *
 * Macros: ITEMS; A_TYPE and the others of types.h; those of the format, whose header comes before.
 */
#include "include/types.h"
#include "quantized/rounded.h"

#define RUN 32
#define WORDS (RUN * BYTES_OF(A_TYPE) / 4) /* of 32 bits, of a run */

/* The word with two numbers of 16 bits, or one of 32. */
#if BYTES_OF(A_TYPE) == 4
#define WORD(v, w) as_uint((v)[w])
#else
#define WORD(v, w) (BITS_OF((v)[2 * (w)]) | BITS_OF((v)[2 * (w) + 1]) << 16)
#endif

__kernel WORK_GROUP(ITEMS, 1, 1) void dequantize(
    const int N, const int K, __global const uchar *b, const long b_offset, const long ldb, const long apart,
    __global A_T *weights, const long ld, const int span)
{
  const int j = get_global_id(1);
  b += b_offset + get_global_id(2) * apart + j * ldb;
  weights += (get_global_id(2) * N + j) * ld;
#if ITEMS > 1
  __local uint words[ITEMS * (WORDS + 1)];
  const int item = get_local_id(0), first = get_group_id(0) * ITEMS * RUN, k = first + item * RUN;
  __local uint *own = words + item * (WORDS + 1);
  if (k < K) {
    float16 number[2];
    weights32(b, k, K, number, number + 1);
    const float *v = (const float *)number;
    UNROLL for (int w = 0; w < WORDS; ++w) own[w] = WORD(v, w);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  __global uint *row = (__global uint *)(weights + first);
  const int count = min(ITEMS, (K - first) / RUN) * WORDS;
  for (int w = item; w < count; w += ITEMS) row[w] = words[w + w / WORDS];
#else
  const int first = get_global_id(0) * span * RUN;
  for (int k = first; k < min(K, first + span * RUN); k += RUN) {
    float16 low, high;
    weights32(b, k, K, &low, &high);
    KEEP(weights + k, low);
    KEEP(weights + k + 16, high);
  }
#endif
}
