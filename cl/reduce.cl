/* reduce: out = the sum of the shares that a product with K cut into shares left in `partial`.
 *
 *   out(i, j) = epilogue(partial(0, i, j) + partial(1, i, j) + ..)       in this order, in every call
 *
 * partial(s, i, j) lies at ((z shares + s) M + i) pitch + j. One work-item an element; dimension 0 of the
 * NDRange runs along j, dimension 1 along i.
 */
__kernel void matmul_reduce(
    GEMM_ARGS, __global const ACC_T *partial, const int shares, const long pitch)
{
  GEMM_BEGIN;
  const long z = BATCH_ENTRY;
  const int j = get_global_id(0);
  const int i = get_global_id(1);
  if (i >= M || j >= N) return;
  partial += (z * shares * M + i) * pitch + j;
  ACC_T acc = ACC_ZERO;
  for (int s = 0; s < shares; ++s) acc += partial[s * M * pitch];
  STORE_RESULT(i, j, acc);
}
