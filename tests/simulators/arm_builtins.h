/* OpenCL's builtins of the kernels for CPUs, where arm_player.c plays a launch. exp, tanh and erf are libm's. */
#define BUILTIN static inline __attribute__((overloadable, always_inline))
ulong player_global_id(uint d);
ulong player_global_size(uint d);
ulong player_local_size(uint d);
BUILTIN size_t get_global_id(uint d) { return player_global_id(d); }
BUILTIN size_t get_group_id(uint d) { return player_global_id(d) / player_local_size(d); }
BUILTIN size_t get_local_id(uint d) { return player_global_id(d) % player_local_size(d); }
BUILTIN size_t get_global_offset(uint d) { return 0; }
BUILTIN size_t get_num_groups(uint d) { return player_global_size(d) / player_local_size(d); }
/* One work-item runs at a time. */
BUILTIN void mem_fence(cl_mem_fence_flags flags) {}
BUILTIN int atomic_inc(volatile __global int *p) { return (*p)++; }

#define INTEGERS(T)                                   \
  BUILTIN T min(T x, T y) { return x < y ? x : y; }   \
  BUILTIN T max(T x, T y) { return x > y ? x : y; }
INTEGERS(int)
INTEGERS(uint)
INTEGERS(long)
INTEGERS(ulong)

#define LIBM(name)                                      \
  float libm_float_##name(float x) __asm__(#name "f");  \
  double libm_##name(double x) __asm__(#name);          \
  BUILTIN float name(float x) { return libm_float_##name(x); } \
  BUILTIN double name(double x) { return libm_##name(x); }
LIBM(exp)
LIBM(tanh)
LIBM(erf)

BUILTIN int isnan(float x) { return x != x; }
BUILTIN float2 convert_float2(float2 x) { return x; }
BUILTIN float2 convert_float2(double2 x) { return (float2)((float)x.x, (float)x.y); }
BUILTIN double2 convert_double2(float2 x) { return (double2)(x.x, x.y); }
BUILTIN double2 convert_double2(double2 x) { return x; }
BUILTIN uint convert_uint(int x) { return (uint)x; }
#define WIDENS(to, from) \
  BUILTIN to convert_##to(from x) { return (to)(x.x, x.y, x.z, x.w); }
WIDENS(int4, char4)
WIDENS(int4, uchar4)
WIDENS(int4, short4)
WIDENS(int4, ushort4)
WIDENS(uint4, ushort4)
/* fcvt rounds to nearest even, as the processor starts. */
BUILTIN float vload_half(size_t i, __global const half *p) { return __builtin_load_halff((const half *)(ulong)(p + i)); }
BUILTIN void vstore_half_rte(float x, size_t i, __global half *p) { __builtin_store_halff(x, (half *)(ulong)(p + i)); }
