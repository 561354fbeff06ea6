/* wmma: out = A B on the matrix units of AMD's RDNA 3 and RDNA 4 devices (gfx11.., gfx12..). unit.cl multiplies by
 * this instruction of 16 x 16 x 16, called by the compiler's builtins: d += a b.
 *
 * Work-item `lane` of 32, element e of its registers:
 *
 *   a[e]   A: row lane % 16,     k = e            RDNA 3: both halves of a sub-group hold the same elements
 *   b[e]   B: column lane % 16,  k = e
 *   d[e]   D: column lane % 16,  row 2 e + lane / 16
 *
 *   a[e]   A: row lane % 16,     k = 8 (lane / 16) + e     RDNA 4: each half holds 8 of the 16 k
 *   b[e]   B: column lane % 16,  k = 8 (lane / 16) + e
 *   d[e]   D: column lane % 16,  row 8 (lane / 16) + e
 *
 *  RDNA 3:   k  0 .. 15                               columns 0 .. 15
 *   A  +---------------------+      D         +-----------------------+
 * row 0| lane 0, and lane 16 |          row 0 | lanes 0..15,   e 0    |
 *     1| lane 1, and lane 17 |              1 | lanes 16..31,  e 0    |
 *    ..|                     |              2 | lanes 0..15,   e 1    |
 *
 *  RDNA 4:   k  0 .. 7   8 .. 15
 *   A  +---------+-----------+      D         +-----------------------+
 * row 0| lane 0  | lane 16   |          row 0 | lanes 0..15,   e 0    |
 *     1| lane 1  | lane 17   |              1 | lanes 0..15,   e 1    |
 *    ..|         |           |              8 | lanes 16..31,  e 0    |
 *
 * AMD numbers the k of 16-bit types on RDNA 4 otherwise: 8 (e / 4) + 4 (lane / 16) + e % 4. A sum over k does not depend
 * on it, as A and B are numbered alike, and so a work-item's elements are neighbours: one read of 16 bytes.
 *
 * Source of the layouts: AMD's matrix instruction calculator (github.com/ROCm/amd_matrix_instruction_calculator,
 * architectures rdna3 and rdna4, wave32). Never run by us.
 *
 * Macros: LANES 32; RDNA, 3 or 4; WORD_K: on RDNA 3 a word is 16 bytes, on RDNA 4 8 elements; those of unit_tile.h.
 */
#include "units/unit_tile.h"

#ifndef RDNA
#error "wmma.h needs RDNA"
#endif
#define UNIT_M 16
#define UNIT_N 16
#define UNIT_WORDS (16 / WORD_K)
#define UNIT_ATTRIBUTES

#if RDNA == 4
typedef word_t a_frag;
#define READ_A(to, tile, width, word, x, lane) \
  ((to) = (tile)[PLACE(width, (word) + (lane) / 16, (x) + (lane) % 16)])
#define D_ROW(e, lane) (8 * ((lane) / 16) + (e))
#define FRAGMENT_16 8 /* elements of 16 bits in a_frag */
#define FRAGMENT_8 int2 /* a_frag of 8-bit integers */
#define WMMA(name) CAT(name, _gfx12)
#else
#if TYPE_CODE == 5
typedef word_t a_frag;
#define READ_A(to, tile, width, word, x, lane) ((to) = (tile)[PLACE(width, word, (x) + (lane) % 16)])
#else
typedef uint8 a_frag;
#define READ_A(to, tile, width, word, x, lane)                          \
  ((to) = (uint8)((tile)[PLACE(width, word, (x) + (lane) % 16)],    \
                  (tile)[PLACE(width, (word) + 1, (x) + (lane) % 16)]))
#endif
#define D_ROW(e, lane) (2 * (e) + (lane) / 16)
#define FRAGMENT_16 16
#define FRAGMENT_8 int4
#define WMMA(name) name
#endif
typedef a_frag b_frag;
#define READ_B READ_A

#if TYPE_CODE == 5
#define MULTIPLY(d, a, b)                                                                                    \
  ((d) = WMMA(__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32)(SIGNED_A, CAT(as_, FRAGMENT_8)(a), SIGNED_B, \
                                                          CAT(as_, FRAGMENT_8)(b), d, 0))
typedef int8 d_frag;
#else
#if TYPE_CODE == 1
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#define MULTIPLY(d, a, b) \
  ((d) = WMMA(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32)(CAT(as_half, FRAGMENT_16)(a), CAT(as_half, FRAGMENT_16)(b), d))
#elif TYPE_CODE == 2
#define MULTIPLY(d, a, b) \
  ((d) = WMMA(__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32)(CAT(as_short, FRAGMENT_16)(a), CAT(as_short, FRAGMENT_16)(b), d))
#else
#error "wmma.h: A_TYPE must be float16, bfloat16, int8 or uint8"
#endif
typedef float8 d_frag;
#endif

#define D_ELEMENTS 8
#define D_COLUMN(e, lane) ((lane) % 16)
