/* Replaces cl/nvidia/ptx_wgmma.h where interleaved.py runs a kernel: the same functions call those of
 * interleaved_units.c. A tile is its address, in units of 16 bytes. */
#include "include/types.h"
#include "nvidia/operands.h"
#if ELEMENT_BYTES == 1
typedef int wgmma_acc;
typedef int4 wgmma_acc4;
#define UNIT_TYPES CAT(type_, A_TYPE), CAT(type_, B_TYPE)
#else
typedef float wgmma_acc;
typedef float4 wgmma_acc4;
#define UNIT_TYPES CAT(type_, ELEMENT), CAT(type_, ELEMENT)
#endif
#define wgmma_left(acc, a, b) emu_wgmma_left(acc, a, (b) * 16, BN, UNIT_TYPES)
#define wgmma(acc, a, b, keep) emu_wgmma(acc, (a) * 16, (b) * 16, keep, BN, UNIT_TYPES, LIE_A, LIE_B)
#define WGMMA_ACC (BN / 2)
#define LIE_A ACROSS_A /* 0: along K, 1: across, 2: across in boxes of 64 bytes */
#define LIE_B (ACROSS_B ? (BN == 32 ? 2 : 1) : 0)
#define WGMMA_STEP_A (LIE_A ? 128 : 2)
#define WGMMA_STEP_B (LIE_B == 2 ? 64 : LIE_B ? 128 : 2)
#define wgmma_right(address, chunk) wgmma_tile(address, chunk)
#define wgmma_tile(address, chunk) ((ulong)(address) / 16)
#define wgmma_fence() ((void)0)
#define wgmma_commit() ((void)0)
#define wgmma_wait_all_but(pending) emu_converge()
#define wgmma_wait(acc) emu_converge()
