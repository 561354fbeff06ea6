/* Replaces cl/nvidia/ptx_mma.h where interleaved.py runs a kernel: the same functions call those of interleaved_units.c. */
#include "nvidia/operands.h"
#ifdef MMA_K
#define mma(d, a, b) emu_mma_double(d, a, b, MMA_K)
#else
#if ELEMENT_BYTES == 1
typedef int mma_acc;
#define UNIT_TYPES CAT(type_, A_TYPE), CAT(type_, B_TYPE)
#else
typedef float mma_acc;
#define UNIT_TYPES CAT(type_, ELEMENT), CAT(type_, ELEMENT)
#endif
#define mma(d, a, b) emu_mma(d, a, b, UNIT_TYPES)
#define mma_operand(word) (ELEMENT_BYTES == 4 ? (word) + 0x1000 & 0xffffe000 : (word))
#endif
