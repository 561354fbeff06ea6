/* wmma: out = A B on the matrix units of AMD's RDNA 3 devices (gfx11..). unit.cl multiplies by this
 * instruction of 16 x 16 x 16, called by the compiler's builtins: d += a b.
 *
 * Work-item `lane` of 32, element e of its registers:
 *
 *   a[e]   A: row lane % 16,     k = e       both halves of a sub-group hold the same elements
 *   b[e]   B: column lane % 16,  k = e
 *   d[e]   D: column lane % 16,  row 2 e + lane / 16
 *
 *      k  0 .. 15                               columns 0 .. 15
 *   A  +---------------------+      D         +-----------------------+
 * row 0| lane 0, and lane 16 |          row 0 | lanes 0..15,   e 0    |
 *     1| lane 1, and lane 17 |              1 | lanes 16..31,  e 0    |
 *    ..|                     |              2 | lanes 0..15,   e 1    |
 *
 * Source of the layouts: AMD's matrix instruction calculator (github.com/ROCm/amd_matrix_instruction_calculator,
 * architecture rdna3, wave32). Never run by us.
 *
 * Macros: LANES 32; WORD_K, a word is 16 bytes; those of unit_tile.h.
 */
#include "units/unit_tile.h"

#define WMMA_TYPE TYPE_CODE
#define UNIT_M 16
#define UNIT_N 16
#define UNIT_WORDS (16 / WORD_K)
#define UNIT_ATTRIBUTES

#if WMMA_TYPE == 5
typedef word_t a_frag;
#define READ_A(to, tile, width, word, x, lane) ((to) = (tile)[PLACE(width, word, (x) + (lane) % 16)])
#define MULTIPLY(d, a, b)                                                                             \
  ((d) = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(SIGNED_A, as_int4(a), SIGNED_B, as_int4(b), \
                                                    d, 0))
typedef int8 d_frag;
#else
typedef uint8 a_frag;
#define READ_A(to, tile, width, word, x, lane)                          \
  ((to) = (uint8)((tile)[PLACE(width, word, (x) + (lane) % 16)],    \
                  (tile)[PLACE(width, (word) + 1, (x) + (lane) % 16)]))
#if WMMA_TYPE == 1
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#define MULTIPLY(d, a, b) ((d) = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(a), as_half16(b), d))
#elif WMMA_TYPE == 2
#define MULTIPLY(d, a, b) ((d) = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(as_short16(a), as_short16(b), d))
#else
#error "wmma.h: A_TYPE must be float16, bfloat16, int8 or uint8"
#endif
typedef float8 d_frag;
#endif
typedef a_frag b_frag;
#define READ_B READ_A

#define D_ELEMENTS 8
#define D_ROW(e, lane) (2 * (e) + (lane) / 16)
#define D_COLUMN(e, lane) ((lane) % 16)
