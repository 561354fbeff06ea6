/* limbs_convert: one operand as whole numbers of two limbs (limbs.h).
 *
 *   work-item (n, line) of A -> limbs_a[z][line][n];  work-item (line, n) of B -> limbs_b[z][n][line]
 *
 * So neighbouring work-items write neighbours, and read neighbours unless the operand is transposed.
 * Macros: those of gemm.h. Technique: see limbs.h.
 */
#include "include/gemm.h"
#include "residues/limbs.h"
#include "residues/lines.h"
#include "residues/residues.h"

__kernel void limbs_convert(
    GEMM_ARGS, __global const int *scales, __global const plan_t *plan, __global ulong *limbs, const int second)
{
  GEMM_BEGIN;
  operand_t x;
  find_operand(&x, second, a, lda, b, ldb, M, N, K);
  const int at = get_global_id(0), row = get_global_id(1), width = second ? x.lines : x.depth;
  if (!plan->count || at >= width) return;
  const int line = second ? at : row, n = second ? row : at;
  const int scale = scales[BATCH_ENTRY * (M + N) + (second ? M : 0) + line];
  const ulong bits = x.from[place_of(&x, line, n)] ^ sign_of(&x, n);
  const long whole = (long)whole_of(bits, (second ? plan->bits_b : plan->bits_a) - scale);
  const long upper = (whole + ((long)1 << (LIMB - 1))) >> LIMB;
  const uint lower = (uint)(whole - (upper << LIMB));
  limbs[(BATCH_ENTRY * x.lines) * x.depth + row * width + at] = (ulong)upper << 32 | lower;
}
