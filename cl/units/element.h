/* How a matrix unit treats an element type, from A_TYPE and B_TYPE, which one instruction multiplies:
 *
 *   TYPE_CODE       1 float16, 2 bfloat16, 3 float32, 4 float64, 5 8-bit integers
 *   ELEMENT_BYTES   1, 2, 4, 8
 *   SIGNED_A SIGNED_B   0, 1, for 8-bit integers
 */
#include "include/types.h"

#define code_float16 1
#define code_bfloat16 2
#define code_float32 3
#define code_float64 4
#define code_int8 5
#define code_uint8 5
#define TYPE_CODE CAT(code_, A_TYPE)

#define bytes_float16 2
#define bytes_bfloat16 2
#define bytes_float32 4
#define bytes_float64 8
#define bytes_int8 1
#define bytes_uint8 1
#define ELEMENT_BYTES CAT(bytes_, A_TYPE)

#define signed_int8 1
#define signed_uint8 0
#define SIGNED_A CAT(signed_, A_TYPE)
#define SIGNED_B CAT(signed_, B_TYPE)
