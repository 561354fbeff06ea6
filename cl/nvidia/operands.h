/* operands: the size of the elements that matrix units multiply, and where the operand of product z of a stack begins, in elements
 * from the start of its buffer.
 *
 *   stride != 0   offset + z * stride
 *   stride == 0   offset + the operand's entry of batch_offsets (gemm.h)
 *
 * An operand that was packed (pack.cl) is passed as `a` or `b`, stored along K, with its own leading dimension.
 *
 * Macros: ELEMENT, a type's name: float16, bfloat16, int8, uint8, float32 (multiplied as TF32), float64.
 * Parameters of an entry: a_stride, b_stride, elements from one product's operand to the next one's, or 0.
 */
#include "include/gemm.h"

#ifndef ELEMENT
#error "operands.h needs ELEMENT"
#endif
#define ELEMENT_BYTES BYTES_OF(ELEMENT)
/* The name that PTX has for 8-bit integers. */
#define ptx_int8 s8
#define ptx_uint8 u8
#define PTX_BYTES(type) CAT(ptx_, type)

#define OPERAND_STRIDES const long a_stride, const long b_stride

/* What an entry passes to the function that reads its operands, as RESULT_ARGS and RESULT of gemm.h. */
#define OPERANDS_ARGS                                                                                        \
  const int M, const int N, const int K, __global const A_T *a, const long a_offset, const long lda,         \
  __global const B_T *b, const long b_offset, const long ldb, __global const long *batch_offsets, OPERAND_STRIDES
#define OPERANDS M, N, K, a, a_offset, lda, b, b_offset, ldb, BATCH_OFFSETS, a_stride, b_stride

/* The operand of product z. `listed`: its entry of batch_offsets. An element has `nbytes` bytes. */
INLINE __global const uchar *operand_in_stack(
    __global const void *first, const long offset, const long z, const long stride, const long listed, const int nbytes)
{
  return (__global const uchar *)first + (offset + (stride ? z * stride : listed)) * nbytes;
}
