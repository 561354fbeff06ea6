/* packed, first step: copy A and B into the panels that packed_tile.h describes.
 *
 *        K                       panel p = rows p*MR .. p*MR + MR - 1, PADDED_K * MR elements long
 *   +---------+                  work-group (p, q, z): steps q*chunk .. of panel p, batch entry z
 *   | panel 0 | MR rows
 *   +---------+                  B likewise: panel p = columns p*NR .., K * NR elements long
 *   | panel 1 |
 *   +---------+                  what sticks out of the matrix is filled with zeros
 *
 * Transposes, strides, conjugation and conversion to ACC_T end here: later steps see one layout.
 *
 * Macros: those of packed_tile.h, which comes before.
 */
#define PADDED_K ((K + UNROLL - 1) / UNROLL * UNROLL)

/* Steps k0..k1 of the rows from i0 on, of which `rows` exist. */
INLINE void pack_rows(
    __global ACC_T *to, __global const A_T *a, const long lda, const int i0, const int rows,
    const int k0, const int k1)
{
#if TRANS_A
  for (int k = k0; k < k1; ++k)
    for (int i = 0; i < MR; ++i)
      to[(long)k * MR + i] = i < rows ? LOAD_A(a, A_INDEX(i0 + i, k)) : ACC_ZERO;
#else
  for (int k = k0; k < k1; k += UNROLL)
    for (int i = 0; i < MR; ++i)
      for (int u = 0; u < UNROLL; ++u)
        to[(long)k * MR + i * UNROLL + u] =
            i < rows && k + u < k1 ? LOAD_A(a, A_INDEX(i0 + i, k + u)) : ACC_ZERO;
#endif
}

/* The same where nothing needs a guard: the compiler makes vectors of it. */
INLINE void pack_full_rows(
    __global ACC_T *to, __global const A_T *a, const long lda, const int i0, const int k0,
    const int k1)
{
#if TRANS_A
  for (int k = k0; k < k1; ++k)
    _Pragma("unroll") for (int i = 0; i < MR; ++i)
      to[(long)k * MR + i] = LOAD_A(a, A_INDEX(i0 + i, k));
#else
  for (int k = k0; k < k1; k += UNROLL)
    for (int i = 0; i < MR; ++i)
      _Pragma("unroll") for (int u = 0; u < UNROLL; ++u)
        to[(long)k * MR + i * UNROLL + u] = LOAD_A(a, A_INDEX(i0 + i, k + u));
#endif
}

__kernel ONE_ITEM void pack_a(
    GEMM_ARGS, const int chunk, __global ACC_T *panels, const long stack)
{
  GEMM_BEGIN;
  const int i0 = get_group_id(0) * MR;
  const int k0 = get_group_id(1) * chunk;
  const int k1 = min(K, k0 + chunk);
  const int rows = min(MR, M - i0);
  __global ACC_T *to = panels + get_global_id(2) * stack + (long)i0 * PADDED_K;
  const int full = rows < MR ? k0 : k1 - (k1 - k0) % UNROLL;
  pack_full_rows(to, a, lda, i0, k0, full);
  pack_rows(to, a, lda, i0, rows, full, k1);
}

__kernel ONE_ITEM void pack_b(
    GEMM_ARGS, const int chunk, __global ACC_T *panels, const long stack)
{
  GEMM_BEGIN;
  const int j0 = get_group_id(0) * NR;
  const int k0 = get_group_id(1) * chunk;
  const int k1 = min(K, k0 + chunk);
  const int cols = min(NR, N - j0);
  __global ACC_T *to = panels + get_global_id(2) * stack + (long)j0 * K;
  if (cols == NR) {
    for (int k = k0; k < k1; ++k)
      _Pragma("unroll") for (int j = 0; j < NR; ++j)
        to[(long)k * NR + j] = LOAD_B(b, B_INDEX(k, j0 + j));
  } else {
    for (int k = k0; k < k1; ++k)
      for (int j = 0; j < NR; ++j)
        to[(long)k * NR + j] = j < cols ? LOAD_B(b, B_INDEX(k, j0 + j)) : ACC_ZERO;
  }
}
