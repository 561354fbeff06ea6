/* fragment_blocks: affine weights in the order of fragments on their way to registers, for wgmma_fragments.cl.
 *
 * 64 columns of B are a block, the last one may have fewer, r. A block is what one copy of the copy engine brings: for each 128 of K
 * r times 16 BITS bytes, and behind all of these for each group of K r pairs, scale and bias:
 *
 *     | k 0 .. 127: column 0, column 1, .. | k 128 .. 255: .. | .. | group 0: pair 0, pair 1, .. | group 1: .. | ..
 *
 * A column's parts of 16 bytes lie in the order of another for each of eight columns, so that ldmatrix meets different
 * banks.
 *
 * Macros: STEPS, most steps of a range; those of few_rows.h and weights.h.
 */
#include "nvidia/exponents.h"
#include "nvidia/few_rows.h"

#ifndef STEPS
#error "fragment_blocks.h needs STEPS"
#endif
#define BLOCK 64
#define BLOCKS (BN / BLOCK)
#define COLUMN_BYTES (16 * BITS) /* of a column, a slice's weights */
#define BLOCK_BYTES (BLOCK * COLUMN_BYTES * SLICES)
#define RUNS_BYTES (BLOCKS * BLOCK_BYTES)
#define RUNS_AT ((RESIDENT ? STEPS : STAGES) * A_BYTES) /* behind A */
#define PAIR_BYTES (2 * BYTES_OF(SCALE_ELEMENT))
#define PAIRS_BYTES ((STEPS * STEP / GROUP_SIZE + 1) * BLOCK * PAIR_BYTES) /* of a block; one more, which columns that are not there read */
#define PAIRS_AT (RUNS_AT + STAGES * RUNS_BYTES)

/* The columns of block `block` of a tile that begins at column j0. */
INLINE int columns_of(const int j0, const int block, const int N) { return min(BLOCK, max(0, N - j0 - block * BLOCK)); }

/* Starts the copies of the pairs of `groups` groups from k0 on. Announces them at `bar`. */
INLINE void copy_pairs(
    const uint slots, __global const uchar *b, const long ldb, const int j0, const int N, const int K, const int k0, const int groups,
    const uint bar)
{
  uint bytes[BLOCKS], all = 0;
  UNROLL for (int block = 0; block < BLOCKS; ++block)
    all += bytes[block] = (columns_of(j0, block, N) * groups * PAIR_BYTES + 15) / 16 * 16;
  mbarrier_expect(bar, all);
  UNROLL for (int block = 0; block < BLOCKS; ++block) {
    const int columns = columns_of(j0, block, N);
    __global const uchar *from =
        b + (j0 + block * BLOCK) * ldb + (long)(K / DEPTH * COLUMN_BYTES + k0 / GROUP_SIZE * PAIR_BYTES) * columns;
    if (columns) copy_bytes(slots + PAIRS_AT + block * PAIRS_BYTES, from, bytes[block], bar);
  }
}

/* Where a work-item has its weights in a stage, and its pairs. Those of column + 8 are 8 columns behind. */
typedef struct {
  uint runs, pairs; /* addresses of those of stage 0, of the range's first group */
  int group;        /* bytes from group to group */
} place_t;

INLINE place_t place_in(const uint slots, const int j0, const int N)
{
  const int columns = columns_of(j0, TEAM / 4, N), line = TEAM % 4 * 16 + OWN_LANE % 8;
  const int part = OWN_LANE / 8 ^ (BITS == 4 ? OWN_LANE / 2 % 4 : OWN_LANE % 8);
  const uint runs = RUNS_AT + TEAM / 4 * BLOCK_BYTES + (SLICE * columns + line) * COLUMN_BYTES + part * 16;
  const int group = columns * PAIR_BYTES, first = TEAM % 4 * 16 + OWN_LANE / 4;
  const uint pairs = PAIRS_AT + TEAM / 4 * PAIRS_BYTES + SLICE * (DEPTH / GROUP_SIZE) * group + first * PAIR_BYTES;
  return (place_t){slots + runs, slots + pairs, group};
}

/* Of the 128 weights of a sub-group's columns g and g + 8, t's. */
INLINE void take_weights(uint words[2][BITS], const uint from)
{
  UNROLL for (int n = 0; n < 2; ++n)
    UNROLL for (int m = 0; m < BITS; m += 4) load_matrices(words[n] + m, (from ^ m * 16) + n * 8 * COLUMN_BYTES);
}

/* The scale and bias at `from`. */
INLINE void take_pair(run_t *run, const uint from)
{
#if PAIR_BYTES == 8
  const uint2 pair = *(__local const uint2 *)local_at(from);
  run->scale = pair.s0, run->bias = pair.s1;
#else
  const uint pair = *(__local const uint *)local_at(from);
  run->scale = chosen_bytes(pair, 0, 0x1010), run->bias = chosen_bytes(pair, 0, 0x3232);
#endif
}

#if TOP_MODE
/* Whether the highest mode of weights.h serves all pairs, of which a work-item judges some: eight at a time, as local memory
 * answers late. */
INLINE bool all_top(__local const uchar *memory, const int j0, const int N, const int groups)
{
  const int item = get_local_id(0);
  range_t range = no_range();
  UNROLL for (int block = 0; block < BLOCKS; ++block) {
    __local const uint *pairs = (__local const uint *)(memory + PAIRS_AT + block * PAIRS_BYTES);
    const int count = columns_of(j0, block, N) * groups, fours = count / 4;
    for (int f = item; f < fours; f += 2 * ITEMS) {
      const uint4 one = ((__local const uint4 *)pairs)[f];
      const uint4 other = ((__local const uint4 *)pairs)[min(f + ITEMS, fours - 1)];
      const uint held[8] = {one.s0, one.s1, one.s2, one.s3, other.s0, other.s1, other.s2, other.s3};
      UNROLL for (int p = 0; p < 8; ++p) widen(&range, held[p]);
    }
    if (item < count % 4) widen(&range, pairs[4 * fours + item]);
  }
  return top_serves_range(&range);
}
#endif
