/* shares: out = the sum of the shares that wgmma.cl left in `partial`, for the tiles that it cut.
 *
 *   out(i, j) = epilogue(share 0 (i, j) + share 1 (i, j) + ..)       in this order, in every call
 *
 * A work-group of 128 stands in for one quartet and four of its accumulators (shares.h): work-item
 * 32 s + 4 g + t adds those of two rows (fragment_rows.h), columns 8 j + 2 t and 8 j + 2 t + 1. Group
 * number: (cut tile, quartet, j), the last fastest.
 *
 * Macros: those of the headers.
 */
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void matmul_shares(
    GEMM_ARGS, __global const ACC_T *partial, const int whole, const int shares, const int stack)
{
  KEEP_STACK;
  GEMM_BEGIN;
  const work_t work = work_of(M, N, K, stack, whole, shares);
  const int w = get_local_id(0);
  const int quad = get_group_id(0) % (ACCS / 4);
  const int owner = get_group_id(0) / (ACCS / 4) % OWNERS;
  const int tile = get_group_id(0) / (ACCS / 4) / OWNERS;
  ACC_T acc[4] = {ACC_ZERO, ACC_ZERO, ACC_ZERO, ACC_ZERO};
  #pragma unroll 8
  for (int share = 0; share < shares; ++share) {
    __global const ACC_T *from = partial + slot_at(BATCH_ENTRY, share, tile, owner, work) + 4 * (128 * quad + w);
    #pragma unroll
    for (int e = 0; e < 4; ++e) acc[e] += from[e];
  }
  const unit_t unit = unit_at(whole + tile, work);
  MOVE_IN_STACK(unit.layer);
  const int fragment = owner + quad / (WGMMA_ACC / 4);
  const int row = unit.origin.s0 + 64 * fragment + fragment_row(w);
  const int column = unit.origin.s1 + quad % (WGMMA_ACC / 4) * 8 + w % 4 * 2;
  #pragma unroll
  for (int e = 0; e < 4; ++e) STORE_RESULT_AT(OUT_AT, row + e / 2 * ROW_STEP, column + e % 2, acc[e]);
}
