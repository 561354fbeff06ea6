/* Replaces cl/nvidia/ptx_mma.h where interleaved.py runs a kernel: the same functions call those of interleaved_units.c. */
#include "nvidia/operands.h"
#ifdef MMA_K
#define mma(d, a, b) emu_mma_double(d, a, b, MMA_K)
#else
#define sign_int8 1
#define sign_uint8 0
#define type_float16 1
#define type_bfloat16 2
#define type_float32 3
#if ELEMENT_BYTES == 1
typedef int mma_acc;
#define mma(d, a, b) emu_mma_bytes(d, a, b, CAT(sign_, A_TYPE), CAT(sign_, B_TYPE))
#else
typedef float mma_acc;
#define mma(d, a, b) emu_mma(d, a, b, CAT(type_, ELEMENT))
#endif
#define mma_operand(word) (ELEMENT_BYTES == 4 ? (word) + 0x1000 & 0xffffe000 : (word))
#endif
