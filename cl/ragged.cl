/* ragged: fills the tables of listed.h from the sizes of groups, which are on the device.
 *
 *   AXIS_K 0: rows of A and out are divided             AXIS_K 1: K is divided
 *
 *       A, out        B                                   A (M x K), B (K x N)        out
 *      +------+     +------+                             +------+---+-+              +------+
 *      |  0   |  x  |   0  | K x N                       |  0   | 1 |2|      ->      |   0  | M x N
 *      +------+     +------+                             +------+---+-+              +------+
 *      |  1   |     |   1  |                             the same of B               |   1  |
 *      |______|     +------+                                                         +------+
 *      | rest |  zeros
 *
 * Group g is product g. Product `groups` is what no group has: rows that become zeros, of no steps of K.
 * A size below 0 counts as 0, and a group ends where the rows end. Either sets the alarm, and `verdict` says which.
 *
 * Every work-group adds up all sizes and writes a part of the tiles; the first one writes the products. An entry of
 * `tiles` is as listed.h says.
 *
 * The tiles are bm x bn; alpha_low, alpha_high are the bytes of alpha, which is 1. Macros: PRODUCT (listed.h); ITEMS, work-items of
 * a work-group; ROOM, a power of two above the number of groups; AXIS_K; TRANS_A, TRANS_B; SIZE_64, 0, 1: sizes of 32 or 64
 * bits; those of tile_order.h.
 */
#include "include/tile_order.h"

#if !defined(PRODUCT) || !defined(ITEMS) || !defined(ROOM) || !defined(AXIS_K) || !defined(TRANS_A) || !defined(TRANS_B) || !defined(SIZE_64)
#error "ragged.cl needs PRODUCT ITEMS ROOM AXIS_K TRANS_A TRANS_B SIZE_64"
#endif
#if SIZE_64
typedef long size_type;
#else
typedef int size_type;
#endif

/* starts[g] = the sum of values 0 .. g - 1 of `starts`, at most `most`, which is below 2^31; for all g < each * ITEMS. */
INLINE void add_up(__local uint *starts, __local uint *sums, const int each, const uint most)
{
  const int id = get_local_id(0);
  uint own = 0;
  for (int i = 0; i < each; ++i) own = min(own + starts[id * each + i], most);
  sums[id] = own;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = 1; reach < ITEMS; reach *= 2) {
    const uint before = id >= reach ? sums[id - reach] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[id] = min(sums[id] + before, most);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint sum = id ? sums[id - 1] : 0;
  for (int i = 0; i < each; ++i) {
    const uint value = starts[id * each + i];
    starts[id * each + i] = sum;
    sum = min(sum + value, most);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

/* The last g < room whose value is at most `at`. */
INLINE int found(__local const uint *starts, const int room, const uint at)
{
  int low = 0;
  for (int step = ROOM / 2; step; step /= 2) {
    const int next = min(low + step, room - 1);
    if (starts[next] <= at) low = next;
  }
  return low;
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void list_groups(
    const int M, const int N, const int K, const int groups, const long lda, const long ldb, const long ldo,
    const int bm, const int bn, const long stride, const long alpha_low, const long alpha_high, __global const size_type *group_sizes,
    const long group_sizes_offset, __global long *products, __global int4 *tiles_listed, __global int *alarm, __global int *verdict)
{
  __local uint starts[ROOM], firsts[ROOM], sums[ITEMS];
  const int id = get_local_id(0), length = AXIS_K ? K : M;
  const int across = (N + bn - 1) / bn, tiles_m = (M + bm - 1) / bm;
  const int each = (groups + ITEMS) / ITEMS, room = each * ITEMS;
  bool wrong = false;

  /* Where each group begins. starts[groups] is where the last one ends. */
  for (int g = id; g < room; g += ITEMS) {
    const size_type size = g < groups ? group_sizes[group_sizes_offset + g] : 0;
    wrong |= size < 0;
    starts[g] = size < 0 ? 0 : size > length ? length + 1 : (uint)size;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  add_up(starts, sums, each, length + 1u);
  wrong |= starts[groups] > length;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int g = id; g < room; g += ITEMS) starts[g] = min(starts[g], (uint)length);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (wrong && get_group_id(0) == 0) {
    verdict[4] = length;
    alarm[0] = 1;
  }

  /* Tiles of each group, then the first one of each. Behind the groups are the rows that no group has. */
  const int products_of = AXIS_K ? groups : groups + 1;
  for (int g = id; g < room; g += ITEMS) {
    const int end = g < groups ? starts[g + 1] : length, rows = AXIS_K ? M : end - (int)starts[g];
    firsts[g] = g < products_of ? (rows + bm - 1) / bm * across : 0;
    if (get_group_id(0) == 0 && g < products_of) {
      const int size = end - (int)starts[g];
      const long at = starts[g], steps = AXIS_K ? size : g < groups ? K : 0;
      const long row[PRODUCT] = {
          AXIS_K == TRANS_A ? at * lda : at, AXIS_K ? (TRANS_B ? at : at * ldb) : g < groups ? g * stride : 0, 0,
          AXIS_K ? g * stride : at * ldo, 0, AXIS_K ? M : size, N, steps, lda, ldb, ldo, 0, 0, 0,
          alpha_low, alpha_high, 0, 0};
      for (int i = 0; i < PRODUCT; ++i) products[PRODUCT * (long)g + i] = row[i];
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  add_up(firsts, sums, each, INT_MAX);
  const int count = sums[ITEMS - 1];
  if (get_group_id(0) == 0 && id == 0) tiles_listed[0] = (int4)(count, 0, 0, 0);
  for (int t = get_group_id(0) * ITEMS + id; t < count; t += get_num_groups(0) * ITEMS) {
    const int g = found(firsts, room, t), end = g < groups ? starts[g + 1] : length;
    const int rows = AXIS_K ? tiles_m : (end - (int)starts[g] + bm - 1) / bm;
    const int2 tile = tile_at(t - firsts[g], rows, across);
    tiles_listed[1 + t] = (int4)(g, tile.x * bm, tile.y * bn, (int)starts[g]);
  }
}
