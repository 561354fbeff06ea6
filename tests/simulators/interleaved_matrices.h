/* Replaces cl/nvidia/ptx_matrices.h where interleaved.py runs a kernel. */
#define load_matrices(w, address) emu_load_matrices(w, address)
#define load_matrices_transposed(w, address) emu_load_matrices_transposed(w, address)
static uint chosen_bytes(uint a, uint b, uint which)
{
  const ulong bytes = a | (ulong)b << 32;
  uint word = 0;
  for (int e = 0; e < 4; ++e) {
    const uint byte = bytes >> (which >> 4 * e & 7) * 8 & 255;
    word |= (which >> 4 * e & 8 ? byte >> 7 ? 255 : 0 : byte) << 8 * e;
  }
  return word;
}
