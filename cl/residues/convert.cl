/* convert: the residues of both operands (residues.h), as signed bytes, lines along k.
 *
 *   residues_a[z][i][line][k], residues_b[z][i][line][k]      i: number of the product; k < pitch, zeros from K on
 *
 *              64 of k              A work-group converts a tile of 32 lines. Elements are read in the order of memory and
 *          +-------------+          turned in local memory. A work-item converts eight elements of a line.
 *     32   |             |
 *          +-------------+
 *
 * a' + 2^63 = l_0 + 2^8 l_1 + .. + 2^56 l_7, unsigned bytes. The residue of a' is that of l_0 w_0 + .. + l_7 w_7 + c with
 * the weights, signed bytes, and the constant of kernels/residues/moduli.py. Those of A have the factor (P / p_i)^-1
 * modulo p_i, so that the products' residues are the digits that combine.cl adds. Complex numbers: re + i im has 16 bytes
 * and weights; re - i im is the next modulus of `residues`. The sum is below 2^21, so that floats divide
 * it exactly.
 *
 * Macros: MODULI, products modulo a number; those of gemm.h. Technique: see residues.h.
 */
#include "include/attributes.h"
#include "include/dot_bytes.h"
#include "include/gemm.h"
#include "residues/lines.h"
#include "residues/residues.h"

#define TILE_LINES 32
#define TILE_K 64
#define RUN 8 /* real numbers that a work-item converts */
#define BYTES (RUN / PLANES)
#define ITEMS (TILE_LINES * TILE_K / RUN)
#if PLANES == 2
typedef uchar4 bytes_t;
#define ALL_OF(r) ((bytes_t)((r)[0], (r)[1], (r)[2], (r)[3]))
#else
typedef uchar8 bytes_t;
#define ALL_OF(r) ((bytes_t)((r)[0], (r)[1], (r)[2], (r)[3], (r)[4], (r)[5], (r)[6], (r)[7]))
#endif

/* round(x 2^shift) + 2^63, |x 2^shift| <= 2^62; halves away from zero. */
INLINE ulong whole_of(const ulong bits, const int shift)
{
  int exponent;
  const ulong whole = significand(bits, &exponent);
  const int up = exponent + shift;
  ulong result;
  if (up >= 0) result = up < 64 ? whole << up : 0; /* from 64 on, only zero */
  else result = up < -54 ? 0 : ((whole >> (-up - 1)) + 1) >> 1;
  return (bits & SIGN_BIT ? -result : result) ^ SIGN_BIT;
}

#define MAGIC 0x1.8p23f /* numbers near it are integers, whose lowest byte is the float's */

/* The residue of a number from its first real part on, between -p / 2 and p / 2. row: see moduli.py. */
INLINE uchar residue_of(const ulong *x, const uint8 row)
{
  uint sum = (uint)dot_bytes((uint)(x[0] >> 32), (int)row.s4, dot_bytes((uint)x[0], (int)row.s3, (int)row.s2));
#if PLANES == 2
  sum = (uint)dot_bytes((uint)(x[1] >> 32), (int)row.s6, dot_bytes((uint)x[1], (int)row.s5, (int)sum));
#endif
  const float x_0 = as_float(sum | TO_FLOAT) - as_float(TO_FLOAT);
  const float quotient = x_0 * as_float(row.s1) + MAGIC - MAGIC;
  return (uchar)as_uint(x_0 + MAGIC - quotient * as_float(row.s0));
}

__kernel WORK_GROUP(ITEMS, 1, 1) void residues_convert(
    GEMM_ARGS, __global const int *scales, __global const plan_t *plan, __global uchar *residues_a,
    __global uchar *residues_b, const long pitch, __constant const uint8 *table)
{
  __local ulong tile[TILE_LINES * (TILE_K + 1)];
  GEMM_BEGIN;
  const int products = plan->products, id = get_local_id(0), tiles_k = (int)(pitch * PLANES / TILE_K);
  const int tiles_a = (M + TILE_LINES - 1) / TILE_LINES * tiles_k, group = get_group_id(0);
  const bool second = group >= tiles_a;
  operand_t x;
  find_operand(&x, second, a, lda, b, ldb, M, N, K);
  const int number = second ? group - tiles_a : group;
  const int line = number / tiles_k * TILE_LINES, k = number % tiles_k * TILE_K;
  UNROLL for (int n = 0; n < RUN; ++n) {
    const int at = n * ITEMS + id;
    const int l = x.across ? at % TILE_LINES : at / TILE_K, kk = x.across ? at / TILE_LINES : at % TILE_K;
    const bool exists = line + l < x.lines && k + kk < x.depth;
    tile[l * (TILE_K + 1) + kk] = exists ? bits_at(&x, line + l, k + kk) : 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const int l = id / (TILE_K / RUN), kk = id % (TILE_K / RUN) * RUN;
  if (line + l >= x.lines) return;
  const int scale = scales[BATCH_ENTRY * (M + N) + (second ? M : 0) + line + l];
  const int bits = second ? plan->bits_b : plan->bits_a;
  ulong v[RUN];
  UNROLL for (int e = 0; e < RUN; ++e) v[e] = whole_of(tile[l * (TILE_K + 1) + kk + e], bits - scale);
  __global uchar *to = (second ? residues_b : residues_a) + BATCH_ENTRY * MODULI * x.lines * pitch;
  to += (line + l) * pitch + (k + kk) / PLANES;
  __constant const uint8 *rows = table + (plan->count * 2 + second) * MODULI;
  for (int i = 0; i < products; ++i) {
    uchar r[BYTES];
    UNROLL for (int e = 0; e < BYTES; ++e) r[e] = residue_of(v + PLANES * e, rows[i]);
    *(__global bytes_t *)(to + (long)i * x.lines * pitch) = ALL_OF(r);
  }
}
