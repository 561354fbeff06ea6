/* Replaces cl/nvidia/ptx.h and ptx_map.h where interleaved.py runs a kernel: the
 * same functions call those of interleaved_units.c. It also has the builtins that clang lacks. */
#define inline static
uint emu_item(void);
uint emu_items(void);
uint emu_group(void);
uint emu_groups(void);
uint emu_row(void);
uint emu_rows(void);
uint emu_layer(void);
void emu_named(uint n, uint count, int wait);
void emu_converge(void);
void emu_meet_members(void);
void emu_part(uint base, uint nbytes);
uint emu_of_member(uint address, uint which);
void emu_mbarrier_init(uint address, uint arrivals);
void emu_mbarrier_change(uint address, int arrivals, int bytes);
void emu_mbarrier_wait(uint address, uint parity);
void emu_copy_bytes(uint to, __global const uchar *from, uint bytes, uint bar);
void emu_copy_box(uint to, __global const ulong *map, int x, int y, int layer, uint bar);
void emu_wgmma(void *acc, uint a, uint b, int keep, int columns, int type_a, int type_b, int lie_a, int lie_b);
void emu_wgmma_left(void *acc, const uint *a, uint b, int columns, int type_a, int type_b);
void emu_held(float *acc, const uint *a, ulong b);
void emu_held_commit(void);
void emu_held_wait(int pending, int columns, int type);
int emu_all(int x);
void emu_load_pair(uint *words, uint from);
void emu_load_four(uint *words, uint from);
__local uchar *emu_local(uint address);
void emu_store_half(uint to, uint word);
void emu_store_word(uint to, uint word);
void emu_store_pair(uint to, uint first, uint second);
void emu_bare_stores(void);
void emu_bare_fence(void);
void emu_bare_wgmma(float *d, ulong a, ulong b);
void emu_bare_commit(void);
void emu_bare_wait(float *d, int bfloat16);
void emu_copy(uint to, __global const void *from, int bytes, int size);
void emu_commit(void);
void emu_land(uint pending);
uint emu_exchanged(uint value, int distance);
void emu_load_matrices(uint *w, uint address);
void emu_load_matrices_transposed(uint *w, uint address);
void emu_mma(void *d, const uint *a, const uint *b, int type_a, int type_b);
void emu_mma_double(double *d, const double *a, const double *b, int depth);
/* The types that units multiply, of bytes A's and B's. */
#define type_float16 1
#define type_bfloat16 2
#define type_float32 3
#define type_int8 4
#define type_uint8 5
float emu_float_of_half(ushort x);
ushort emu_half_of_float(float x);

#define BUILTIN __attribute__((overloadable, always_inline))
BUILTIN size_t get_local_id(uint d) { return d == 0 ? emu_item() : 0; }
BUILTIN size_t get_group_id(uint d) { return d == 0 ? emu_group() : d == 1 ? emu_row() : emu_layer(); }
BUILTIN size_t get_num_groups(uint d) { return d == 0 ? emu_groups() : d == 1 ? emu_rows() : 1; }
BUILTIN size_t get_local_size(uint d) { return d == 0 ? emu_items() : 1; }
BUILTIN size_t get_global_id(uint d) { return get_group_id(d) * get_local_size(d) + get_local_id(d); }
BUILTIN size_t get_global_offset(uint d) { return 0; }
BUILTIN void barrier(cl_mem_fence_flags flags) { emu_named(0, emu_items(), 1); }
BUILTIN int min(int x, int y) { return x < y ? x : y; }
BUILTIN int max(int x, int y) { return x > y ? x : y; }
BUILTIN uint max(uint x, uint y) { return x > y ? x : y; }
BUILTIN uint min(uint x, uint y) { return x < y ? x : y; }
BUILTIN ulong min(ulong x, ulong y) { return x < y ? x : y; }
BUILTIN uint mul_hi(uint x, uint y) { return (ulong)x * y >> 32; }
BUILTIN float fabs(float x) { return __builtin_fabsf(x); }
BUILTIN int isnan(float x) { return x != x; }
BUILTIN int clz(int x) { return __builtin_clz(x); }
BUILTIN ulong clz(ulong x) { return __builtin_clzl(x); }
BUILTIN float2 convert_float2(float2 x) { return x; }
BUILTIN int atomic_add(volatile __local int *p, int v) { return __sync_fetch_and_add(p, v); }
BUILTIN int atomic_min(volatile __local int *p, int v) { return __sync_fetch_and_min(p, v); }
BUILTIN int atomic_max(volatile __local int *p, int v) { return __sync_fetch_and_max(p, v); }
BUILTIN uint atomic_max(volatile __local uint *p, uint v) { return __sync_fetch_and_umax(p, v); }
#define HALVES(space)                                                                                         \
  BUILTIN float vload_half(size_t i, const space half *p) { return emu_float_of_half(((const space ushort *)p)[i]); } \
  BUILTIN void vstore_half_rte(float x, size_t i, space half *p) { ((space ushort *)p)[i] = emu_half_of_float(x); }
HALVES(__global)
HALVES(__private)

/* what headers of formats call */
#define CONVERTED(to, from) BUILTIN to convert_##to(from x) { return __builtin_convertvector(x, to); }
#define LOADED(n, type)                                                                                          \
  BUILTIN type##n vload##n(size_t i, __global const type *p)                                                    \
  {                                                                                                              \
    union { type##n v; type each[n]; } u;                                                                        \
    for (int e = 0; e < n; ++e) u.each[e] = p[n * i + e];                                                        \
    return u.v;                                                                                                  \
  }
#define OF_TYPE(type)                                                                                            \
  LOADED(2, type) LOADED(3, type) LOADED(4, type) LOADED(8, type) LOADED(16, type)                               \
  CONVERTED(float4, type##4) CONVERTED(float8, type##8) CONVERTED(float16, type##16)                             \
  CONVERTED(uint4, type##4) CONVERTED(uint8, type##8) CONVERTED(uint16, type##16) CONVERTED(int16, type##16)
OF_TYPE(char) OF_TYPE(uchar) OF_TYPE(short) OF_TYPE(ushort) OF_TYPE(int) OF_TYPE(uint)
BUILTIN uint16 min(uint16 x, uint16 y) { return x < y ? x : y; }
BUILTIN uint16 max(uint16 x, uint16 y) { return x > y ? x : y; }
BUILTIN uint16 select(uint16 x, uint16 y, int16 which) { return which ? y : x; }
BUILTIN uint16 select(uint16 x, uint16 y, uint16 which) { return as_int16(which) ? y : x; }
BUILTIN float16 fma(float16 a, float16 b, float16 c)
{
  float16 v;
  for (int e = 0; e < 16; ++e) v[e] = __builtin_fmaf(a[e], b[e], c[e]);
  return v;
}
BUILTIN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

/* ptx.h */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define local_address(p) ((uint)(ulong)(p))
#define local_at(address) emu_local(address)
#define copy_async(to, from, size, bytes, wanted) ((wanted) ? emu_copy(to, from, bytes, size) : (void)0)
#define fill_async(to, from, size, bytes) emu_copy(to, from, bytes, size)
#define copies_commit() emu_commit()
#define copies_wait(pending) emu_land(pending)
/* a sub-group of one */
#define SUB_GROUP 1
#define most(x) (x)
#define least(x) (x)
#define total(x) (x)
#define first_ones(x) (x)
#define all_items(x) (x)
#define sub_group_barrier() emu_converge()
#define exchanged(value, distance) emu_exchanged(value, distance)
#define meet(bar, items) emu_named(bar, items, 1)
#define announce(bar, items) emu_named(bar, items, 0)
#define QUARTET 128
#define TWO_QUARTETS 256
/* Local memory, registers */
#define leave_half(to, word) emu_store_half(to, word)
#define leave_word(to, word) emu_store_word(to, word)
#define leave_pair(to, words) emu_store_pair(to, (words).s0, (words).s1)
#define stores_fence() ((void)0)
#define fewer_registers() ((void)0)
#define more_registers() ((void)0)
#define load_pair(words, from) emu_load_pair(words, from)
static uint4 load_four(uint from)
{
  uint w[4];
  emu_load_four(w, from);
  return (uint4)(w[0], w[1], w[2], w[3]);
}
/* Pairs of 16-bit floats */
static uint packed_float16(float low, float high) { return emu_half_of_float(low) | (uint)emu_half_of_float(high) << 16; }
static uint rounded_bits(float x) { return x != x ? 0x7fff : (as_uint(x) + 0x7fff + (as_uint(x) >> 16 & 1)) >> 16; }
static uint packed_bfloat16(float low, float high) { return rounded_bits(low) | rounded_bits(high) << 16; }
#define all_of_group(x) emu_all(x)
#define device_fence() ((void)0)
#define prefetch_line(from) ((void)0)
BUILTIN int atomic_inc(volatile __global int *p) { return __sync_fetch_and_add(p, 1); }

/* a b + c, truncated to float32, with the last bit set if that is not all of it: rounding it again gives what rounding the
 * sum itself gives. The product of 16-bit floats is exact. */
static float odd_sum(float a, float b, float c)
{
  const double product = (double)a * b, sum = product + c, part = sum - product;
  const double rest = (product - (sum - part)) + (c - part);
  ulong bits = as_ulong(sum);
  if (rest != 0 && !(bits & 1)) bits += (rest > 0) == (sum > 0) ? 1 : -1;
  const double whole = as_double(bits);
  uint low = as_uint((float)whole);
  if ((double)as_float(low) != whole && whole == whole) {
    if (fabs(as_float(low)) > __builtin_fabs(whole)) --low;
    low |= 1;
  }
  return as_float(low);
}
static float half_at(uint word, int h, int bfloat)
{
  const ushort bits = word >> 16 * h;
  return bfloat ? as_float((uint)bits << 16) : emu_float_of_half(bits);
}
static uint fused_float16(uint a, uint b, uint c)
{
  return packed_float16(odd_sum(half_at(a, 0, 0), half_at(b, 0, 0), half_at(c, 0, 0)),
                        odd_sum(half_at(a, 1, 0), half_at(b, 1, 0), half_at(c, 1, 0)));
}
static uint fused_bfloat16(uint a, uint b, uint c)
{
  return packed_bfloat16(odd_sum(half_at(a, 0, 1), half_at(b, 0, 1), half_at(c, 0, 1)),
                         odd_sum(half_at(a, 1, 1), half_at(b, 1, 1), half_at(c, 1, 1)));
}
static void read_once(uint *words, __global const uchar *from)
{
  for (int w = 0; w < 4; ++w) words[w] = ((__global const uint *)from)[w];
}
static uint of_halves(int low, int high) { return (ushort)low | (uint)high << 16; }
static uint lesser_halves(uint x, uint y) { return of_halves(min((short)x, (short)y), min((int)x >> 16, (int)y >> 16)); }
static uint greater_halves(uint x, uint y) { return of_halves(max((short)x, (short)y), max((int)x >> 16, (int)y >> 16)); }
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
/* ptx_map.h */
#define mbarrier_init(bar, arrivals) emu_mbarrier_init(bar, arrivals)
#define mbarrier_fence() ((void)0)
#define mbarrier_arrive(bar) emu_mbarrier_change(bar, 1, 0)
#define mbarrier_expect(bar, bytes) emu_mbarrier_change(bar, 1, bytes)
#define mbarrier_wait(bar, parity) emu_mbarrier_wait(bar, parity)
#define copy_box(to, map, x, y, layer, bar) emu_copy_box(to, map, x, y, layer, bar)
#define copy_bytes(to, from, bytes, bar) emu_copy_bytes(to, from, bytes, bar)
#define map_acquire(map) ((void)0)
#define fetch_map(map) ((void)0)
#define MAP_SLOT 48
typedef struct {
  __global const uchar *from;
  int columns, rows, layers;
  long pitch, layer_pitch;
  int box_columns, box_rows, box_layers;
} map_t;
#define word_about(slot, n) 0
#define keep_map(slot, n, scratch, of, box_bytes, about)                                                      \
  do {                                                                                                        \
    const ulong words_[11] = {(ulong)(of).from, (of).rows, (of).columns, (of).pitch, (of).box_rows,           \
                              (of).box_columns, ELEMENT_BYTES == 1 ? 0 : ELEMENT_BYTES == 2 ? 1 : 11,         \
                              (of).layers, (of).layer_pitch, box_bytes, (of).box_layers};             \
    if (get_local_id(0) % 32 == 0)                                                                            \
      for (int w_ = 0; w_ < 11; ++w_) ((slot) + 16 * (n))[w_] = words_[w_];                                    \
  } while (0)
