/* Replaces cl/nvidia/ptx_wgmma_bare.h where interleaved.py runs a kernel: the same functions call those of
 * interleaved_units.c. */
#undef stores_fence
#undef wgmma
#undef wgmma_fence
#undef wgmma_commit
#undef wgmma_wait
#define bare_float16 0
#define bare_bfloat16 1
#define stores_fence() emu_bare_stores()
#define wgmma_fence() emu_bare_fence()
#define wgmma(d, a, b) emu_bare_wgmma(d, a, b)
#define wgmma_commit() emu_bare_commit()
#define wgmma_wait(d) emu_bare_wait(d, CAT(bare_, A_TYPE))
