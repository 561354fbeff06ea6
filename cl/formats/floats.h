/* Small floating-point numbers as float32: E2M1, E4M3, and powers of two, E8M0 (OCP Microscaling Formats 1.0). */
#include "formats/bytes.h"

/* Twice the numbers of E2M1 codes 0 to 15: 0 1 2 3 4 6 8 12, behind 8 their negatives. */
INLINE float16 doubled_e2m1(const uint16 code)
{
  const float16 size = NUMBERS((uint16)(0xc8643210u) >> (code & 7u) * 4u & 15u);
  return as_float16(as_uint16(size) | (code & 8u) << 28);
}

/* E4M3 codes 0 to 255; a NaN where all bits but the sign's are set. No intermediate number is subnormal. */
INLINE float16 numbers_e4m3(const uint16 code)
{
  const uint16 exponent = code >> 3 & 15u, one = as_uint16(exponent != 0u) & 1u;
  const float16 size = NUMBERS((code & 7u) | one << 3) * as_float16((exponent - one + 118u) << 23);
  const uint16 nan = as_uint16((code & 127u) == 127u) & 0x7fc00000u;
  return as_float16(as_uint16(size) | nan | (code & 128u) << 24);
}

/* 2^(code - 127); NaN for 255. */
INLINE float power_e8m0(const uint code)
{
  return as_float(code == 255u ? 0x7fc00000u : code == 0u ? 0x00400000u : code << 23);
}
