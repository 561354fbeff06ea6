/* Many products in one launch: what a work-group computes stands in two tables, in order from the most steps of K.
 *
 *   tiles_listed[0].x      how many tiles there are; there may be more work-groups
 *   tiles_listed[1 + g]    of work-group g: its product, the first row and the first column of its tile, and where its
 *                          product begins along what is divided among products, M or K; -1 if nothing is
 *   products + PRODUCT * p product p: PRODUCT longs, in the order of LISTED_BEGIN
 *
 * The host fills them (kernels/listed.py), or ragged.cl on the device.
 */
#include "include/types.h"
#include "include/extras.h"

#define PRODUCT 18

/* The tile of a work-group. Where there is none its product has no rows, columns and steps, so nothing is read or
 * stored: a work-group that returned before a barrier would mislead PoCL 3 (GATE in gemm.h). */
#define LISTED_BEGIN LISTED_BEGIN_AT(get_group_id(0))
#define LISTED_BEGIN_AT(group)                                                                         \
  const bool is_listed = (int)(group) < tiles_listed[0].x;                                             \
  const int4 tile_listed = is_listed ? tiles_listed[1 + (group)] : (int4)(0);                          \
  LISTED_PRODUCT(tile_listed.x)
/* Moves the pointers to product z. */
#define LISTED_PRODUCT(z)                                                                              \
  __global const long *own = products + PRODUCT * (long)(z);                                           \
  a += a_offset + own[0], b += b_offset + own[1], out += out_offset + own[3];                          \
  EXTRAS_BEGIN(own[2], own[4]);                                                                        \
  const int M = is_listed ? own[5] : 0, N = is_listed ? own[6] : 0, K = is_listed ? own[7] : 0;        \
  const long lda = own[8], ldb = own[9], ldo = own[10], c_rs = own[11], c_cs = own[12];                \
  const long bias_stride = own[13];                                                                    \
  const ACC_T alpha = *(__global const ACC_T *)(own + 14), beta = *(__global const ACC_T *)(own + 16)

/* For kernels that find the products of a launch by themselves: what is the same for all. */
#define LISTED_OF_ALL                                                                                            \
  const int M = M_of_all, N = N_of_all, K = K_of_all;                                                            \
  const long lda = lda_of_all, ldb = ldb_of_all, ldo = ldo_of_all, c_rs = c_rs_of_all, c_cs = c_cs_of_all;       \
  const long bias_stride = bias_stride_of_all;                                                                   \
  const ACC_T alpha = alpha_of_all, beta = beta_of_all
