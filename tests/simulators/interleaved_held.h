/* Replaces cl/nvidia/ptx_wgmma_held.h where interleaved.py runs a kernel: the same functions call those of
 * interleaved_units.c. A tile is its address, in units of 16 bytes. */
#define held_tile(address) ((address) / 16)
#define wgmma_held(d, a, b) emu_held(a, b)
#define wgmma_fence() ((void)0)
#define wgmma_commit() ((void)0)
#define wgmma_wait_all_but(pending) emu_converge()
#define wgmma_wait_held(d) emu_held_wait(d, BM, CAT(type_, ELEMENT))
