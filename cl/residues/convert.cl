/* convert: the residues of both operands (residues.h), as signed bytes, lines along k.
 *
 *   residues_a[z][i][line][k], residues_b[z][i][line][k]      i: number of the product; k < pitch, zeros from K on
 *
 *              128 of k             A work-group converts a tile of 16 lines. Elements are read in the order of memory and
 *          +-------------+          turned in local memory. A work-item converts eight elements of a line.
 *     16   |             |
 *          +-------------+
 *
 * a' + 2^63 = l_0 + 2^8 l_1 + .. + 2^56 l_7, unsigned bytes. The residue of a' is that of l_0 w_0 + .. + l_7 w_7 + c with
 * the weights, signed bytes, and the constant of kernels/residues/moduli.py. Those of A have the factor (P / p_i)^-1
 * modulo p_i, so that the products' residues are the digits that combine.cl adds. Complex numbers: re + i im has 16 bytes
 * and weights; re - i im is the next modulus of `residues`. The sum is below 2^21. Its quotient by p comes from floats, and
 * is rounded right: half of p is further from a whole residue than floats err.
 *
 * Macros: MODULI, products modulo a number; those of gemm.h. Technique: see residues.h.
 */
#include "include/dot_bytes.h"
#include "include/gemm.h"
#include "residues/lines.h"
#include "residues/residues.h"

#define TILE_LINES 16
#define TILE_K 128
#define RUN 8 /* real numbers that a work-item converts */
#define TILE_LD (TILE_K + TILE_K / RUN + 1)
#define IN_TILE(l, k) ((l) * TILE_LD + (k) + (k) / RUN) /* gaps: neighbours read and write different banks */
#define BYTES (RUN / PLANES)
#define ITEMS (TILE_LINES * TILE_K / RUN)

#define ROUNDED 0x1.8p23f /* a float plus this is an integer, whose lowest byte is the sum's */

/* In the lowest byte the residue of a number from its first real part on, between -p / 2 and p / 2. row: see moduli.py. */
INLINE uint residue_of(const ulong *x, const uint8 row)
{
  uint sum = (uint)dot_bytes((uint)(x[0] >> 32), (int)row.s4, dot_bytes((uint)x[0], (int)row.s3, (int)row.s2));
#if PLANES == 2
  sum = (uint)dot_bytes((uint)(x[1] >> 32), (int)row.s6, dot_bytes((uint)x[1], (int)row.s5, (int)sum));
#endif
  const float whole = as_float(sum) - as_float(TO_FLOAT);
  return sum - as_uint(whole * as_float(row.s1) + ROUNDED) * row.s0;
}

__kernel WORK_GROUP(ITEMS, 1, 1) void residues_convert(
    GEMM_ARGS, __global const int *scales, __global const plan_t *plan, __global uchar *residues_a,
    __global uchar *residues_b, const long pitch, __constant const uint8 *table)
{
  __local ulong tile[TILE_LINES * TILE_LD];
  GEMM_BEGIN;
  const int products = plan->products, id = get_local_id(0), tiles_k = (int)(pitch * PLANES / TILE_K);
  const int tiles_a = (M + TILE_LINES - 1) / TILE_LINES * tiles_k, group = get_group_id(0);
  const bool second = group >= tiles_a;
  operand_t x;
  find_operand(&x, second, a, lda, b, ldb, M, N, K);
  const int number = second ? group - tiles_a : group;
  const int line = number / tiles_k * TILE_LINES, k = number % tiles_k * TILE_K;
  { /* reads RUN elements that are `more` apart, across lines or along them */
    const int l = x.across ? id % TILE_LINES : id / TILE_K, kk = x.across ? id / TILE_LINES : id % TILE_K;
    const int more_l = x.across ? 0 : ITEMS / TILE_K, more_k = x.across ? ITEMS / TILE_LINES : 0;
    const int left = x.across ? x.depth - k - kk : x.lines - line - l, more = more_l + more_k;
    const int reach = line + l < x.lines && k + kk < x.depth ? left : 0;
    __global const ulong *from = x.from + place_of(&x, line + l, k + kk);
    const long step = step_of(&x, more_l, more_k);
    const ulong sign = sign_of(&x, kk);
    ulong bits[RUN];
    UNROLL for (int n = 0; n < RUN; ++n) bits[n] = n * more < reach ? from[n * step] : 0;
    __local ulong *to = tile + IN_TILE(l, kk);
    UNROLL for (int n = 0; n < RUN; ++n) to[n * IN_TILE(more_l, more_k)] = bits[n] ^ sign;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const int l = id / (TILE_K / RUN), kk = id % (TILE_K / RUN) * RUN;
  if (line + l >= x.lines) return;
  const int scale = scales[BATCH_ENTRY * (M + N) + (second ? M : 0) + line + l];
  const int bits = second ? plan->bits_b : plan->bits_a;
  ulong v[RUN];
  UNROLL for (int e = 0; e < RUN; ++e) v[e] = whole_of(tile[IN_TILE(l, kk) + e], bits - scale) ^ SIGN_BIT;
  __global uchar *to = (second ? residues_b : residues_a) + BATCH_ENTRY * MODULI * x.lines * pitch;
  to += (line + l) * pitch + (k + kk) / PLANES;
  __constant const uint8 *rows = table + (plan->count * 2 + second) * MODULI;
  for (int i = 0; i < products; ++i) {
    uint r[BYTES];
    UNROLL for (int e = 0; e < BYTES; ++e) r[e] = residue_of(v + PLANES * e, rows[i]);
    __global uint *at = (__global uint *)(to + (long)i * x.lines * pitch);
#if PLANES == 2
    *at = low_bytes(r[0], r[1], r[2], r[3]);
#else
    *(__global uint2 *)at = (uint2)(low_bytes(r[0], r[1], r[2], r[3]), low_bytes(r[4], r[5], r[6], r[7]));
#endif
  }
}
