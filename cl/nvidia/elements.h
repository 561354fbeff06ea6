/* elements: ELEMENT_BYTES, the size of the elements that matrix units multiply.
 *
 * Macros: ELEMENT, a type's name: float16, bfloat16, int8, uint8, float32 (multiplied as TF32), float64.
 */
#include "include/types.h"

#ifndef ELEMENT
#error "elements.h needs ELEMENT"
#endif
#define ELEMENT_BYTES BYTES_OF(ELEMENT)
/* The name that PTX has for 8-bit integers. */
#define ptx_int8 s8
#define ptx_uint8 u8
#define PTX_BYTES(type) CAT(ptx_, type)
