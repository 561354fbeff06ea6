/* ptx_matrices: ldmatrix (sm_75), which loads 8 x 8 matrices from local memory, and prmt, which puts their bytes in another
 * order, as inline PTX. The 32 work-items of a sub-group call ldmatrix together.
 *
 * Technique: as in NVIDIA's PTX manual.
 */
#include "include/types.h"

/* Loads four matrices of 8 rows x 16 bytes. Work-item l gives the address of row l % 8 of matrix l / 8. Of each matrix
 * m it gets bytes 4 (l % 4) .. 4 (l % 4) + 3 of row l / 4, in w[m]. */
INLINE void load_matrices(uint *w, const uint address)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(address) : "memory");
}

/* The same for 16-bit elements, with each 8 x 8 matrix transposed. */
INLINE void load_matrices_transposed(uint *w, const uint address)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(address) : "memory");
}

/* Four of the eight bytes of x (0 to 3) and y (4 to 7): hexadecimal digit i of `which` chooses byte i of the result. From 8
 * on it is eight times the sign of byte digit - 8. */
INLINE uint chosen_bytes(const uint x, const uint y, const uint which)
{
  uint word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(x), "r"(y), "r"(which));
  return word;
}
