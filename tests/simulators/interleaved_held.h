/* Replaces cl/nvidia/ptx_wgmma_held.h where interleaved.py runs a kernel: the same functions call those of
 * interleaved_units.c. A tile is its address, in units of 16 bytes. */
#define held_tile(address) ((address) / 16)
#define wgmma_held(d, a, b) emu_held(d, a, b)
#define wgmma_fence() ((void)0)
#define wgmma_commit() emu_held_commit()
#define wgmma_wait_all_but(pending) emu_held_wait(pending, BM, CAT(type_, ELEMENT))
#define wgmma_wait_held(d) emu_held_wait(0, BM, CAT(type_, ELEMENT))
