/* dpas: out = A B on the matrix units of Intel's devices. unit.cl multiplies by this instruction of
 * cl_intel_subgroup_matrix_multiply_accumulate: d += a b. The result has eight rows, and one column for each work-item
 * of a sub-group of LANES, 8 or 16. With W = WORD_K:
 *
 *   LANES 8    a[e]   A: row e,        k = W lane .. W lane + W - 1, a word
 *   LANES 16   a[e]   A: row e,        k = W / 2 lane .., half a word
 *   both       b[e]   B: column lane,  k = W e .. W e + W - 1, a word
 *              d[e]   D: column lane,  row e
 *
 *      k  0..W-1   W..2W-1 ..            column 0    1   ..            column 0    1   ..
 *   A  +--------+--------+       B      +--------+--------+     D      +--------+--------+
 * row 0| lane 0 | lane 1 | e 0   word 0 | lane 0 | lane 1 | e 0  row 0 | lane 0 | lane 1 | e 0
 *     1| lane 0 | lane 1 | e 1        1 | lane 0 | lane 1 | e 1      1 | lane 0 | lane 1 | e 1
 *
 * Source of the layouts: the extension's specification, revision 1.1.0. Never run by us.
 *
 * Macros: LANES 8, 16; WORD_K, a word is 4 bytes; those of unit_tile.h.
 */
#include "units/unit_tile.h"

#define UNIT_M 8
#define UNIT_N LANES
#define UNIT_WORDS 8
#define UNIT_ATTRIBUTES __attribute__((intel_reqd_sub_group_size(LANES)))

#if LANES == 8
typedef int8 a_frag;
typedef uint8 a_unsigned;
#define A_UNSIGNED as_uint8
#define PART_A(tile, width, word, x, lane) as_int((tile)[PLACE(width, (word) + (lane), x)])
#else
typedef short8 a_frag;
typedef ushort8 a_unsigned;
#define A_UNSIGNED as_ushort8
#define PART_A(tile, width, word, x, lane) \
  (short)((tile)[PLACE(width, (word) + (lane) / 2, x)] >> (lane) % 2 * 16)
#endif
typedef int8 b_frag;
#define READ_A(to, tile, width, word, x, lane)                                                  \
  do {                                                                                          \
    UNROLL for (int e_ = 0; e_ < 8; ++e_) (to)[e_] = PART_A(tile, width, word, (x) + e_, lane); \
  } while (0)
#define READ_B(to, tile, width, word, x, lane)                                                  \
  do {                                                                                          \
    UNROLL for (int e_ = 0; e_ < 8; ++e_)                                                       \
      (to)[e_] = as_int((tile)[PLACE(width, (word) + e_, (x) + (lane))]);                       \
  } while (0)

#if TYPE_CODE == 1
#define MULTIPLY(d, a, b) ((d) = intel_sub_group_f16_f16_matrix_mad_k16(a, b, d))
typedef float8 d_frag;
#elif TYPE_CODE == 2
#define MULTIPLY(d, a, b) ((d) = intel_sub_group_bf16_bf16_matrix_mad_k16(a, b, d))
typedef float8 d_frag;
#elif TYPE_CODE != 5
#error "dpas.h: A_TYPE must be float16, bfloat16, int8 or uint8"
#else
typedef int8 d_frag;
#if SIGNED_A && SIGNED_B
#define MULTIPLY(d, a, b) ((d) = intel_sub_group_i8_i8_matrix_mad_k32(a, b, d))
#elif SIGNED_A
#define MULTIPLY(d, a, b) ((d) = intel_sub_group_i8_u8_matrix_mad_k32(a, as_uint8(b), d))
#elif SIGNED_B
#define MULTIPLY(d, a, b) ((d) = intel_sub_group_u8_i8_matrix_mad_k32(A_UNSIGNED(a), b, d))
#else
#define MULTIPLY(d, a, b) ((d) = intel_sub_group_u8_u8_matrix_mad_k32(A_UNSIGNED(a), as_uint8(b), d))
#endif
#endif

#define D_ELEMENTS 8
#define D_ROW(e, lane) (e)
#define D_COLUMN(e, lane) (lane)
