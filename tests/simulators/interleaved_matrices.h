/* Replaces cl/nvidia/ptx_matrices.h where interleaved.py runs a kernel. */
#define load_matrices(w, address) emu_load_matrices(w, address)
#define load_matrices_transposed(w, address) emu_load_matrices_transposed(w, address)
static uint permuted_bytes(uint x, uint y, uint which)
{
  const ulong both = x | (ulong)y << 32;
  uint word = 0;
  for (int i = 0; i < 4; ++i) word |= (uint)(both >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
  return word;
}
