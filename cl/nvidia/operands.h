/* operands: where the operands of product z of a stack begin.
 *
 * An operand that was packed (pack.cl) is passed as `a` or `b`, along K, with its own leading dimension.
 *
 *   a_stride, b_stride   elements from one product's operand to the next one's; 0: batch_offsets has where each is
 */
#include "include/attributes.h"
#include "include/gemm.h"

#define OPERAND_STRIDES const long a_stride, const long b_stride

/* Of an operand whose place in the stack is `listed` in batch_offsets, in elements of `nbytes`. */
INLINE __global const uchar *operand_in_stack(
    __global const void *first, const long offset, const long z, const long stride, const long listed, const int nbytes)
{
  return (__global const uchar *)first + (offset + (stride ? z * stride : listed)) * nbytes;
}
