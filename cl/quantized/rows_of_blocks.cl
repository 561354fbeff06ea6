/* rows_of_blocks: weights in the order of fragments as rows, for kernels that read rows (kernels/reordered.py).
 *
 *   b   blocks of 64 rows (nvidia/fragment_blocks.h)           rows   [packed weights | scales | biases]  (formats/packed_rows.h)
 *   | k 0 .. 127: row 0, row 1, .. | k 128 .. | .. | pairs |   ->     | row 0 | row 1 | ..
 *
 * Work-item (i, j, z) has 16 bytes of row j of matrix z; those behind, with i from K / 128 * BITS on, a group's scale and bias.
 *
 * Macros: BITS, 4 or 8; GROUP_SIZE; SCALE_BYTES, 2 or 4.
 */
#include "include/attributes.h"

#define BLOCK 64
#define DEPTH 128
#define FIELDS (16 / BITS)
#define FIELD(words, e, pair) ((words)[(pair) / 2] >> ((pair) % 2 * 16 + (e) * BITS) & ((1u << BITS) - 1))
#if SCALE_BYTES == 4
typedef uint scale_bits;
#else
typedef ushort scale_bits;
#endif

/* 16 bytes with weight 8 e + pair, of 8 pairs, in word pair / 2, as bytes in the order of weights. */
INLINE uint4 in_order(const uint4 part)
{
  const uint words[4] = {part.s0, part.s1, part.s2, part.s3};
  uint found[4] = {0, 0, 0, 0};
  UNROLL for (int e = 0; e < FIELDS; ++e)
    UNROLL for (int pair = 0; pair < 8; ++pair) {
      const int at = (8 * e + pair) * BITS;
      found[at / 32] |= FIELD(words, e, pair) << at % 32;
    }
  return (uint4)(found[0], found[1], found[2], found[3]);
}

__kernel void rows_of_blocks(
    const int N, const int K, __global const uchar *b, const long b_offset, const long apart, __global uchar *rows, const long ld)
{
  const int parts = K / DEPTH * BITS, groups = K / GROUP_SIZE, i = get_global_id(0), j = get_global_id(1), first = j / BLOCK * BLOCK;
  if (i >= parts + groups) return;
  const long column = j - first, columns = min(BLOCK, N - first); /* up to 2^33 parts are in a block */
  b += b_offset + get_global_id(2) * apart + first * ld;
  rows += (get_global_id(2) * N + j) * ld;
  if (i < parts) {
    const int part = i % BITS ^ (BITS == 4 ? column / 2 % 4 : column % 8);
    ((__global uint4 *)rows)[i] = in_order(((__global const uint4 *)b)[(i / BITS * columns + column) * BITS + part]);
    return;
  }
  const int group = i - parts;
  __global const scale_bits *pair = (__global const scale_bits *)(b + (long)parts * 16 * columns) + (group * columns + column) * 2;
  __global scale_bits *scales = (__global scale_bits *)(rows + parts * 16);
  scales[group] = pair[0];
  scales[groups + group] = pair[1];
}
