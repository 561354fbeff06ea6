/* Replaces cl/nvidia/ptx_halves.h where interleaved.py runs a kernel. */
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
