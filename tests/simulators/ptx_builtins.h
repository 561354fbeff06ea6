/* The builtins of NVIDIA's OpenCL C that clang lacks, for compiling without a driver. There are only those that
 * the kernels for matrix units use. erf and exp are placeholders that never run. */
#define BUILTIN __attribute__((overloadable, always_inline))
#define OF_AXIS(name, d) \
  ((d) == 0 ? __nvvm_read_ptx_sreg_##name##_x() \
            : (d) == 1 ? __nvvm_read_ptx_sreg_##name##_y() : __nvvm_read_ptx_sreg_##name##_z())
BUILTIN size_t get_local_id(uint d) { return OF_AXIS(tid, d); }
BUILTIN size_t get_group_id(uint d) { return OF_AXIS(ctaid, d); }
BUILTIN size_t get_num_groups(uint d) { return OF_AXIS(nctaid, d); }
BUILTIN size_t get_local_size(uint d) { return OF_AXIS(ntid, d); }
BUILTIN size_t get_global_size(uint d) { return get_num_groups(d) * get_local_size(d); }
BUILTIN size_t get_global_id(uint d) { return get_group_id(d) * get_local_size(d) + get_local_id(d); }
BUILTIN void barrier(cl_mem_fence_flags flags) { __syncthreads(); }
BUILTIN int min(int x, int y) { return x < y ? x : y; }
BUILTIN int max(int x, int y) { return x > y ? x : y; }
BUILTIN uint max(uint x, uint y) { return x > y ? x : y; }
BUILTIN int isnan(float x) { return x != x; }
float __attribute__((overloadable)) fabs(float x) { return __builtin_fabsf(x); }
BUILTIN int clz(int x) { return __builtin_clz(x); }
BUILTIN float erf(float x) { return x * 0.5f + x * x; }
BUILTIN float exp(float x) { return x * x + 1.0f; }
#define LOCAL_ATOMIC(name, type, ptx)                                                            \
  BUILTIN type atomic_##name(volatile __local type *p, type v)                                   \
  {                                                                                              \
    type old;                                                                                    \
    __asm__ volatile("atom.shared." #name "." ptx " %0, [%1], %2;"                               \
                     : "=r"(old) : "r"((uint)(size_t)p), "r"(v) : "memory");                     \
    return old;                                                                                  \
  }
LOCAL_ATOMIC(max, uint, "u32")
LOCAL_ATOMIC(max, int, "s32")
LOCAL_ATOMIC(min, int, "s32")
LOCAL_ATOMIC(add, int, "s32")
BUILTIN float2 convert_float2(float2 x) { return x; }
inline float float_of_half(const ushort bits)
{
  float x;
  __asm__("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
#define HALVES(space)                                                                            \
  BUILTIN float vload_half(size_t i, const space half *p)                                        \
  {                                                                                              \
    return float_of_half(((const space ushort *)p)[i]);                                          \
  }                                                                                              \
  BUILTIN void vstore_half_rte(float x, size_t i, space half *p)                                 \
  {                                                                                              \
    ushort bits;                                                                                 \
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));                                     \
    ((space ushort *)p)[i] = bits;                                                               \
  }
HALVES(__global)
HALVES(__private)
BUILTIN float8 vload_half8(size_t i, const half *p)
{
  float v[8];
  for (int e = 0; e < 8; ++e) v[e] = vload_half(8 * i + e, p);
  return (float8)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
}
