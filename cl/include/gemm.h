/* What every GEMM entry shares: its arguments, index maps, guarded loads, and the epilogue.
 *
 *   out[z](i, j) = act(alpha * sum_k A[z](i, k) B[z](k, j) + beta * C[z](i, j) + bias)
 *
 * Index maps, in elements (64-bit: rows x leading dimension can exceed 2^31):
 *   TRANS_A  0: A(i, k) at i*lda + k     1: A(i, k) at k*lda + i
 *   TRANS_B  0: B(k, j) at k*ldb + j     1: B(k, j) at j*ldb + k
 *   out(i, j) at i*ldo + j;   C(i, j) at i*c_rs + j*c_cs
 *
 * Macros (a missing one is an error):
 *   TRANS_A TRANS_B   0, 1
 *   BATCHED           0, 1: batch_offsets holds, for each z, the offsets of a, b, c and out
 *   HAS_C             0, 1: 0 if beta is zero, so that C is never read
 *   BIAS              0 none, 1 a value for each column, 2 a value for each row
 *   ACTIVATION        0 none, 1 relu, 2 leaky_relu, 3 gelu, 4 gelu_tanh, 5 sigmoid, 6 tanh, 7 silu
 *   LISTED            0; 1, 2: a work-group finds its product and tile in tables (listed.h); 2: K is divided among products
 *   GATE              0; 1, 2: the launch returns at once unless `gate`, which an earlier launch wrote, lets it run:
 *                     1 if gate[0] is 0; 2 the products z with z % MODULI < gate[0], whose sums are stored modulo a
 *                     number (moduli.h; cl/residues/residues.h). PoCL 3 mixes up the work-items of a work-group that
 *                     returns before a barrier, so kernels with barriers are not for CPUs then
 */
#include "include/types.h"
#include "include/moduli.h"
#include "include/activation.h"
#include "include/extras.h"
#include "include/listed.h"

#if !defined(TRANS_A) || !defined(TRANS_B) || !defined(BATCHED) || !defined(HAS_C) || \
    !defined(BIAS) || !defined(ACTIVATION) || !defined(GATE) || !defined(LISTED)
#error "gemm.h needs TRANS_A TRANS_B BATCHED HAS_C BIAS ACTIVATION GATE LISTED"
#endif
#if GATE
#define GATE_ARG , __global const int *gate
#else
#define GATE_ARG
#endif
#if GATE == 2
#define GATE_SHUT ((int)(BATCH_ENTRY % MODULI) >= gate[0])
#elif GATE == 1
#define GATE_SHUT (gate[0] != 0)
#else
#define GATE_SHUT 0
#endif

/* An entry's parameters. Only three macros use names that they are not given: GEMM_ARGS declares the parameters,
 * GEMM_BEGIN moves its pointers and declares c and bias, RESULT passes on what RESULT_ARGS declares (below). */
#if LISTED
#define LISTED_ARGS , __global const long *products, __global const int4 *tiles_listed
#else
#define LISTED_ARGS
#endif
#if BATCHED
#define BATCH_ARG , __global const long *batch_offsets
#define BATCH_OFFSETS batch_offsets
#else
#define BATCH_ARG
#define BATCH_OFFSETS 0
#endif
#define GEMM_ARGS                                                                                             \
  const int OF_ALL(M), const int OF_ALL(N), const int OF_ALL(K),                                              \
  __global const A_T *a, const long a_offset, const long OF_ALL(lda),                                         \
  __global const B_T *b, const long b_offset, const long OF_ALL(ldb),                                         \
  __global OUT_T *out, const long out_offset, const long OF_ALL(ldo),                                         \
  const ACC_T OF_ALL(alpha), const ACC_T OF_ALL(beta) C_ARGS BIAS_ARGS BATCH_ARG GATE_ARG LISTED_ARGS

/* z, this work-item's product in the stack. It is a global id, so a long stack can be enqueued in pieces. Where each work-item
 * of a CPU is a work-group, it is put together: Intel's compiler (2026.2) takes three times as long for its own, or crashes. */
#ifdef PREFETCHES
#define BATCH_ENTRY ((long)(get_group_id(2) + get_global_offset(2)))
#else
#define BATCH_ENTRY ((long)get_global_id(2))
#endif
#if BATCHED
#define BATCH_OFFSET_OF(batch_offsets, z, which) batch_offsets[4 * (z) + (which)]
#else
#define BATCH_OFFSET_OF(batch_offsets, z, which) 0
#endif
#define BATCH_OFFSET(batch_offsets, which) BATCH_OFFSET_OF(batch_offsets, BATCH_ENTRY, which)

/* Moves the pointers of GEMM_ARGS to this work-item's product of the stack. Every entry begins with it. GEMM_BEGIN_WITH is
 * for kernels that may be given `a` and `b` exchanged: which of the product's offsets are theirs. */
#define GEMM_BEGIN GEMM_BEGIN_WITH(0, 1)
#if LISTED
#define GEMM_BEGIN_WITH(which_a, which_b) LISTED_BEGIN
#else
#define GEMM_BEGIN_WITH(which_a, which_b)               \
  if (GATE_SHUT) return;                                \
  a += a_offset + BATCH_OFFSET(batch_offsets, which_a); \
  b += b_offset + BATCH_OFFSET(batch_offsets, which_b); \
  out += out_offset + BATCH_OFFSET(batch_offsets, 3);   \
  EXTRAS_BEGIN(BATCH_OFFSET(batch_offsets, 2), 0)
#endif

#if TRANS_A
#define A_INDEX(i, k, lda) ((long)(k) * lda + (i))
#else
#define A_INDEX(i, k, lda) ((long)(i) * lda + (k))
#endif
#if TRANS_B
#define B_INDEX(k, j, ldb) ((long)(j) * ldb + (k))
#else
#define B_INDEX(k, j, ldb) ((long)(k) * ldb + (j))
#endif

/* The guarded load: zero outside the matrix. */
#define GUARDED_A(a, i, k, lda, M, K) ((i) < (M) && (k) < (K) ? LOAD_A(a, A_INDEX(i, k, lda)) : ACC_ZERO)
#define GUARDED_B(b, k, j, ldb, K, N) ((k) < (K) && (j) < (N) ? LOAD_B(b, B_INDEX(k, j, ldb)) : ACC_ZERO)

/* alpha acc + beta C + bias, activated.
 *
 * Unless REPRODUCIBLE is 0: fma(alpha, acc, fma(beta, C, bias)), without the terms that are missing. No product of these
 * is added to anything, so a compiler has nothing to fuse. A sum of -0 (from an underflow) becomes +0, as the zeros make
 * it that fill the last tile of some kernels. */
INLINE ACC_T finished(
    const ACC_T acc, const ACC_T alpha, const ACC_T beta, __global const C_T *c,
    const long c_index, __global const BIAS_T *bias, const long bias_index)
{
#if GATE == 2
  return acc; /* a residue by now: no epilogue */
#elif REPRODUCIBLE
  const ACC_T sum = UNSIGNED_ZERO(acc);
#if HAS_C
  const ACC_T old = LOAD_C(c, c_index);
#endif
#if BIAS
  const ACC_T shift = LOAD_BIAS(bias, bias_index);
#endif
#if HAS_C && BIAS
  const ACC_T rest = SCALED_SUM(beta, old, shift);
#elif HAS_C
  const ACC_T rest = SCALE(beta, old);
#elif BIAS
  const ACC_T rest = shift;
#endif
#if HAS_C || BIAS
  const ACC_T value = SCALED_SUM(alpha, sum, rest);
#else
  const ACC_T value = SCALE(alpha, sum);
#endif
#else
  ACC_T value = SCALE(alpha, acc);
#if HAS_C
  const ACC_T old = LOAD_C(c, c_index);
  value = ADD(value, SCALE(beta, old));
#endif
#if BIAS
  value = ADD(value, LOAD_BIAS(bias, bias_index));
#endif
#endif
#if GATE != 2
  return ACTIVATE(value);
#endif
}

/* What an entry passes to the function that writes its result. */
#define RESULT_ARGS                                                                          \
  const int M, const int N, __global OUT_T *out, const long ldo, __global const C_T *c,      \
  const long c_rs, const long c_cs, __global const BIAS_T *bias, const long bias_stride,     \
  const ACC_T alpha, const ACC_T beta
#define RESULT M, N, out, ldo, c, c_rs, c_cs, bias, bias_stride, alpha, beta

/* The guarded store: applies the epilogue to element (i, j) and writes it to element `at` of out. `result` is RESULT.
 * It is a macro because as a function it made float32 products up to 15 % slower on an H200
 * (docs/kernels/register.md). */
#define STORE_RESULT_AT(at, i, j, acc, result) STORE_RESULT_(at, i, j, acc, result)
#define STORE_RESULT(i, j, acc, result) STORE_ELEMENT_(i, j, acc, result)
#define STORE_ELEMENT_(i, j, acc, M, N, out, ldo, c, c_rs, c_cs, bias, bias_stride, alpha, beta)           \
  STORE_RESULT_((long)(i) * (ldo) + (j), i, j, acc, M, N, out, ldo, c, c_rs, c_cs, bias, bias_stride, alpha, beta)
#define STORE_RESULT_(at, i, j, acc, M, N, out, ldo, c, c_rs, c_cs, bias, bias_stride, alpha, beta)        \
  do {                                                                                                     \
    if ((i) < (M) && (j) < (N)) {                                                                          \
      const ACC_T value_ = finished(REDUCED(acc, BATCH_ENTRY), alpha, beta, c, (long)(i) * (c_rs) + (long)(j) * (c_cs), bias,    \
                                    (long)(BIAS == 1 ? (j) : (i)) * (bias_stride));                        \
      STORE_OUT(out, at, value_);                                                                          \
    }                                                                                                      \
  } while (0)
