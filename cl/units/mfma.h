/* mfma: out = A B on the matrix units of AMD's CDNA devices (gfx90a, gfx942). unit.cl multiplies by this
 * instruction, called by the compiler's builtins: d += a b.
 *
 * Work-item `lane` of 64, element e of its registers, U = UNIT_M = UNIT_N:
 *
 *   a[e]   A: row lane % U,     k = WORD_K (lane / U) + e          one word each, b in the same layout as a
 *   b[e]   B: column lane % U,  k = WORD_K (lane / U) + e
 *   d[e]   D: column lane % U,  row (256 / U) (e / 4) + 4 (lane / U) + e % 4
 *                       float64: row 4 e + lane / U
 *
 *      k  0..WORD_K-1   WORD_K..2 WORD_K-1 ..           columns 0 .. U-1
 *   A  +--------------+--------------+     D, U = 32    +-----------------------+
 * row 0| lane 0       | lane U       |         rows 0-3 | lanes 0..31,  e 0..3  |
 *     1| lane 1       | lane U + 1   |              4-7 | lanes 32..63, e 0..3  |
 *    ..|              |              |             8-11 | lanes 0..31,  e 4..7  |
 *
 * Source of the layouts: AMD's matrix instruction calculator (github.com/ROCm/amd_matrix_instruction_calculator,
 * architectures cdna2 and cdna3). Never run by us.
 *
 * Macros: LANES 64; UNIT_M 32 or 16 (float64: 16); WORD_K, elements of K for each work-item: 4 for 16-bit types, 1 for float64,
 * 1 for float32, but 2 where it is multiplied as TF32, 4 (gfx90a) or 8 (gfx942) for int8.
 */
#include "units/unit_tile.h"

#ifndef UNIT_M
#error "mfma.h needs UNIT_M"
#endif
#if TYPE_CODE == 3 && WORD_K == 2
#define MFMA_TYPE 6 /* TF32 */
#else
#define MFMA_TYPE TYPE_CODE
#endif
#define UNIT_N UNIT_M
#define UNIT_WORDS (LANES / UNIT_M)
#define UNIT_ATTRIBUTES
typedef word_t a_frag;
typedef word_t b_frag;
#define READ_A(to, tile, width, word, x, lane) \
  ((to) = (tile)[PLACE(width, (word) + (lane) / UNIT_M, (x) + (lane) % UNIT_M)])
#define READ_B READ_A

#if MFMA_TYPE == 1 && defined(cl_khr_fp16)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
/* The compiler's builtins, by MFMA_TYPE and UNIT_M. */
#define mfma_1_32(a, b, d) __builtin_amdgcn_mfma_f32_32x32x8f16(as_half4(a), as_half4(b), d, 0, 0, 0)
#define mfma_1_16(a, b, d) __builtin_amdgcn_mfma_f32_16x16x16f16(as_half4(a), as_half4(b), d, 0, 0, 0)
#define mfma_2_32(a, b, d) __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(as_short4(a), as_short4(b), d, 0, 0, 0)
#define mfma_2_16(a, b, d) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(as_short4(a), as_short4(b), d, 0, 0, 0)
#define mfma_3_32(a, b, d) __builtin_amdgcn_mfma_f32_32x32x2f32(as_float(a), as_float(b), d, 0, 0, 0)
#define mfma_3_16(a, b, d) __builtin_amdgcn_mfma_f32_16x16x4f32(as_float(a), as_float(b), d, 0, 0, 0)
#define mfma_4_16(a, b, d) __builtin_amdgcn_mfma_f64_16x16x4f64(as_double(a), as_double(b), d, 0, 0, 0)
#if WORD_K == 8
#define mfma_5_32(a, b, d) __builtin_amdgcn_mfma_i32_32x32x16_i8(as_long(a), as_long(b), d, 0, 0, 0)
#define mfma_5_16(a, b, d) __builtin_amdgcn_mfma_i32_16x16x32_i8(as_long(a), as_long(b), d, 0, 0, 0)
#else
#define mfma_5_32(a, b, d) __builtin_amdgcn_mfma_i32_32x32x8i8(as_int(a), as_int(b), d, 0, 0, 0)
#define mfma_5_16(a, b, d) __builtin_amdgcn_mfma_i32_16x16x16i8(as_int(a), as_int(b), d, 0, 0, 0)
#endif
#define mfma_6_32(a, b, d) __builtin_amdgcn_mfma_f32_32x32x4_xf32(as_float2(a), as_float2(b), d, 0, 0, 0)
#define mfma_6_16(a, b, d) __builtin_amdgcn_mfma_f32_16x16x8_xf32(as_float2(a), as_float2(b), d, 0, 0, 0)
#define MFMA CAT(CAT3(mfma_, MFMA_TYPE, _), UNIT_M)
#define MULTIPLY(d, a, b) ((d) = MFMA(a, b, d))

/* d_frag: D_ELEMENTS sums. float16 and int16 are OpenCL's vectors of 16 elements. */
#define D_ELEMENTS (UNIT_M * UNIT_N / LANES)
#if MFMA_TYPE == 4
typedef double4 d_frag;
#elif MFMA_TYPE == 5 && UNIT_M == 32
typedef int16 d_frag;
#elif MFMA_TYPE == 5
typedef int4 d_frag;
#elif UNIT_M == 32
typedef float16 d_frag;
#else
typedef float4 d_frag;
#endif
#if MFMA_TYPE == 4
#define D_ROW(e, lane) (4 * (e) + (lane) / UNIT_M)
#else
#define D_ROW(e, lane) (256 / UNIT_M * ((e) / 4) + 4 * ((lane) / UNIT_M) + (e) % 4)
#endif
#define D_COLUMN(e, lane) ((lane) % UNIT_M)
