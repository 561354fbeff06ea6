/* limbs_round: the result from the sums C' (limbs.h), with the epilogue.
 *
 *   work-item (j, i) -> out(i, j)
 *
 * Macros: those of gemm.h. Technique: see limbs.h.
 */
#include "residues/result.h"
#include "residues/limbs.h"
#include "residues/residues.h"

__kernel void limbs_round(
    GEMM_ARGS, __global const int *scales, __global const plan_t *plan, __global const ulong *wholes)
{
  GEMM_BEGIN;
  const int j = get_global_id(0), i = get_global_id(1);
  if (!plan->count || j >= N) return;
  scales += BATCH_ENTRY * (M + N);
  wholes += WHOLE_AT(BATCH_ENTRY, i, j, 0, M, N);
  const int unit = scales[i] + scales[M + j] - plan->bits_a - plan->bits_b;
  ulong v[PLANES];
  UNROLL for (int part = 0; part < PLANES; ++part) v[part] = rounded_sum(wholes[2 * part + 1], wholes[2 * part], unit);
  STORE_RESULT(i, j, RESULT_OF(v), RESULT);
}
