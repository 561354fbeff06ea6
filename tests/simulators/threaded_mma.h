/* Replaces cl/nvidia/ptx_mma.h and ptx_mma_double.h where threaded.py runs a kernel as threads: the same
 * functions call those of threaded_units.c. */
#ifdef MMA_K
#define mma(d, a, b) emu_mma_double(d, a, b, MMA_K)
#else
#define sign_s8 1
#define sign_u8 0
#if MMA_TYPE == 4
typedef int mma_acc;
#define mma(d, a, b) emu_mma_bytes(d, a, b, CAT(sign_, MMA_A), CAT(sign_, MMA_B))
#else
typedef float mma_acc;
#define mma(d, a, b) emu_mma(d, a, b, MMA_TYPE)
#endif
#define mma_operand(word) (MMA_TYPE == 3 ? (word) + 0x1000 & 0xffffe000 : (word))
#endif
