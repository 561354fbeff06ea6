/* The matrix instructions of cl/units/mfma.h, wmma.h and dpas.h in plain OpenCL C, so that any
 * device can run the kernels that use them. Each builtin is a macro. This text comes before the kernel function.
 *
 * The layouts are from the vendors' tables, which give the register for each element (i, k) of A, (k, j) of B and
 * (i, j) of D; the headers go from register to element. All work-items of a work-group take part: each writes its
 * registers to local memory, EXCHANGE words apart, and reads those of the others. EMULATION_BEGIN comes first in
 * the kernel function.
 */
#define EXCHANGE 8 /* most 32-bit registers of an operand */
#define EMULATION_BEGIN \
  __local uint emulated_a[WORK_ITEMS * EXCHANGE], emulated_b[WORK_ITEMS * EXCHANGE]

#ifndef cl_khr_fp16
#define as_half4(x) (x)
#define as_half8(x) (x)
#define as_half16(x) (x)
#endif

/* d = c + the instruction's products: write registers, barrier, SUM(d, a, b), barrier. */
#define EMULATED(a, b, c, SUM)                                                              \
  ({                                                                                        \
    union { __typeof__(((void)0, (a))) v; uint u[EXCHANGE]; } a_ = {.v = (a)};                           \
    union { __typeof__(((void)0, (b))) v; uint u[EXCHANGE]; } b_ = {.v = (b)};                           \
    for (int u_ = 0; u_ < EXCHANGE; ++u_) {                                                 \
      emulated_a[get_local_id(0) * EXCHANGE + u_] = a_.u[u_];                               \
      emulated_b[get_local_id(0) * EXCHANGE + u_] = b_.u[u_];                               \
    }                                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                                           \
    const int first_ = get_local_id(0) / LANES * LANES * EXCHANGE;                          \
    d_frag d_ = (c);                                                                        \
    SUM(&d_, emulated_a + first_, emulated_b + first_, get_local_id(0) % LANES);            \
    barrier(CLK_LOCAL_MEM_FENCE);                                                           \
    d_;                                                                                     \
  })

/* Element e of a work-item's registers. */
#define REGISTERS(type, lane) ((__local const type *)(registers + (lane) * EXCHANGE))
float element_float16(__local const uint *registers, int lane, int e)
{
  return vload_half(e, REGISTERS(half, lane));
}
float element_bfloat16(__local const uint *registers, int lane, int e)
{
  return as_float((uint)REGISTERS(ushort, lane)[e] << 16);
}
float element_float32(__local const uint *registers, int lane, int e) { return REGISTERS(float, lane)[e]; }
#ifdef cl_khr_fp64
double element_float64(__local const uint *registers, int lane, int e) { return REGISTERS(double, lane)[e]; }
#endif
int element_int8(__local const uint *registers, int lane, int e) { return REGISTERS(char, lane)[e]; }
int element_uint8(__local const uint *registers, int lane, int e) { return REGISTERS(uchar, lane)[e]; }
#define ELEMENT_A CAT(element_, A_TYPE)
#define ELEMENT_B CAT(element_, B_TYPE)

#ifdef MFMA_TYPE
/* A(i, k): lane M (k / per) + i, element k % per; B(k, j): lane M (k / per) + j, the same.
 * D(i, j): 32 x 32: element 4 (i / 8) + i % 4, lane (32 (i / 4)) % 64 + j; 16 x 16: element i % 4, lane
 * 16 (i / 4) + j; float64: element i / 4, lane 16 (i % 4) + j. */
#define MFMA_SUM(NAME, M, K_, PER, D_LANE, D_ELEMENT)                                                   \
  void NAME(void *d, __local const uint *a, __local const uint *b, const int lane)                      \
  {                                                                                                     \
    ACC_T *sums = d;                                                                                    \
    const int j = lane % (M);                                                                           \
    for (int i = 0; i < (M); ++i)                                                                       \
      for (int k = 0; k < (K_) && (D_LANE) + j == lane; ++k)                                            \
        sums[D_ELEMENT] += ELEMENT_A(a, (M) * (k / (PER)) + i, k % (PER)) *                             \
                           ELEMENT_B(b, (M) * (k / (PER)) + j, k % (PER));                              \
  }
#define MFMA_32(K_, PER) MFMA_SUM(mfma_sum, 32, K_, PER, 32 * (i / 4) % 64, 4 * (i / 8) + i % 4)
#define MFMA_16(K_, PER) MFMA_SUM(mfma_sum, 16, K_, PER, 16 * (i / 4), i % 4)
#define __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_f64_16x16x4f64(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_i32_32x32x8i8(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_i32_16x16x16i8(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_i32_32x32x16_i8(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_f32_32x32x4_xf32(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#define __builtin_amdgcn_mfma_f32_16x16x8_xf32(a, b, c, x, y, z) EMULATED(a, b, c, mfma_sum)
#if MFMA_TYPE == 4
MFMA_SUM(mfma_sum, 16, 4, 1, 16 * (i % 4), i / 4)
#elif MFMA_TYPE == 5 && WORD_K == 8 && UNIT_M == 32
MFMA_32(16, 8)
#elif MFMA_TYPE == 5 && WORD_K == 8
MFMA_16(32, 8)
#elif MFMA_TYPE == 3 && UNIT_M == 32
MFMA_32(2, 1)
#elif MFMA_TYPE == 3
MFMA_16(4, 1)
#elif MFMA_TYPE == 6 && UNIT_M == 32
MFMA_32(4, 2)
#elif MFMA_TYPE == 6
MFMA_16(8, 2)
#elif UNIT_M == 32 /* float16, bfloat16, gfx90a's int8 */
MFMA_32(8, 4)
#else
MFMA_16(16, 4)
#endif
#endif

#ifdef WMMA
/* RDNA 3: A(i, k): lanes i and i + 16, element k; B(k, j): lanes j and j + 16, the same. Which of the two is read is
 * not documented. Here it is the first for even k and the second for odd k. D(i, j): element i / 2, lane
 * (16 i) % 32 + j. RDNA 4: 8 bytes of a row in lane i, the next 8 in lane i + 16. D(i, j): element i % 8, lane
 * 16 (i / 8) + j. */
#if RDNA == 4
#define EACH_ (8 / ELEMENT_BYTES)
#define HALF_(k) ((k) / EACH_ % 2)
#define ELEMENT_(k) ((k) / EACH_ / 2 * EACH_ + (k) % EACH_)
#define D_LANE_(i) (16 * ((i) / 8))
#define D_ELEMENT_(i) ((i) % 8)
#else
#define HALF_(k) ((k) % 2)
#define ELEMENT_(k) (k)
#define D_LANE_(i) (16 * (i) % 32)
#define D_ELEMENT_(i) ((i) / 2)
#endif
#define WMMA_SUM(NAME, TYPE_A, TYPE_B)                                                                 \
  void NAME(void *d, __local const uint *a, __local const uint *b, const int lane)                     \
  {                                                                                                    \
    ACC_T *sums = d;                                                                                   \
    const int j = lane % 16;                                                                           \
    for (int i = 0; i < 16; ++i)                                                                       \
      for (int k = 0; k < 16 && D_LANE_(i) + j == lane; ++k)                                           \
        sums[D_ELEMENT_(i)] += CAT(element_, TYPE_A)(a, i + HALF_(k) * 16, ELEMENT_(k)) *              \
                               CAT(element_, TYPE_B)(b, j + HALF_(k) * 16, ELEMENT_(k));               \
  }
WMMA_SUM(wmma_f16, float16, float16)
WMMA_SUM(wmma_bf16, bfloat16, bfloat16)
WMMA_SUM(wmma_00, uint8, uint8)
WMMA_SUM(wmma_01, uint8, int8)
WMMA_SUM(wmma_10, int8, uint8)
WMMA_SUM(wmma_11, int8, int8)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) EMULATED(a, b, c, wmma_f16)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) EMULATED(a, b, c, wmma_bf16)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(signed_a, a, signed_b, b, c, clamp) \
  EMULATED(a, b, c, CAT3(wmma_, signed_a, signed_b))
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12 __builtin_amdgcn_wmma_f32_16x16x16_f16_w32
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12 __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12 __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32
#endif

#ifdef A_UNSIGNED
/* With W k's in 32 bits. A(i, k): LANES 8: lane k / W, its 32 bits number i; LANES 16: lane 2 k / W, its 16 bits
 * number i. B(k, j): lane j, its 32 bits number k / W. D(i, j): lane j, element i. */
#define K_ (TYPE_CODE == 5 ? 32 : 16)
#define W_ (K_ / 8)
#define PER_LANE (K_ / LANES)
#define DPAS_SUM(NAME, TYPE_A, TYPE_B)                                                                 \
  void NAME(void *d, __local const uint *a, __local const uint *b, const int lane)                     \
  {                                                                                                    \
    ACC_T *sums = d;                                                                                   \
    for (int i = 0; i < 8; ++i)                                                                        \
      for (int k = 0; k < K_; ++k)                                                                     \
        sums[i] += CAT(element_, TYPE_A)(a, k / PER_LANE, i * PER_LANE + k % PER_LANE) *               \
                   CAT(element_, TYPE_B)(b, lane, k);                                                  \
  }
DPAS_SUM(dpas_f16_f16, float16, float16)
DPAS_SUM(dpas_bf16_bf16, bfloat16, bfloat16)
DPAS_SUM(dpas_i8_i8, int8, int8)
DPAS_SUM(dpas_i8_u8, int8, uint8)
DPAS_SUM(dpas_u8_i8, uint8, int8)
DPAS_SUM(dpas_u8_u8, uint8, uint8)
#define intel_sub_group_f16_f16_matrix_mad_k16(a, b, c) EMULATED(a, b, c, dpas_f16_f16)
#define intel_sub_group_bf16_bf16_matrix_mad_k16(a, b, c) EMULATED(a, b, c, dpas_bf16_bf16)
#define intel_sub_group_i8_i8_matrix_mad_k32(a, b, c) EMULATED(a, b, c, dpas_i8_i8)
#define intel_sub_group_i8_u8_matrix_mad_k32(a, b, c) EMULATED(a, b, c, dpas_i8_u8)
#define intel_sub_group_u8_i8_matrix_mad_k32(a, b, c) EMULATED(a, b, c, dpas_u8_i8)
#define intel_sub_group_u8_u8_matrix_mad_k32(a, b, c) EMULATED(a, b, c, dpas_u8_u8)
#endif
