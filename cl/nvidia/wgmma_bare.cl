/* wgmma_bare: out = A B by one matrix instruction of NVIDIA's sm_90a and nothing else. For learning.
 *
 *                j0   64             for t = 0, 64, 128, ... < K:
 *              +----+---+              fill      tile_a = A(i0.., t..), tile_b = B(t.., j0..)
 *              | B  |###| t            fence     the matrix units see what work-items have stored
 *              +----+---+              barrier   the tiles are complete
 *     t                                multiply  four instructions, each of 16 of K; they only start here
 *   +--+---+   +----+---+              wait      until they are done
 *   |A |###|   |out |xxx| i0           barrier   no instruction reads the tiles any more
 *   +--+---+   +----+---+
 *
 * A work-group is a quartet: 128 work-items, four sub-groups that execute the instruction together. A tile has 64
 * lines, which are rows of A or columns of B. A line has 64 elements of K: 128 bytes, eight chunks of 16. The
 * instruction reads the same chunk of eight lines together. So chunk c of line r lies at place c ^ (r % 8), and those
 * eight chunks lie in different memory banks:
 *
 *     line 0 | 0 1 2 3 4 5 6 7 |     line 2 | 2 3 0 1 6 7 4 5 |     eight lines are an atom: 1,024 bytes,
 *     line 1 | 1 0 3 2 5 4 7 6 |     line 3 | 3 2 1 0 7 6 5 4 |     which begins on a multiple of 1,024
 *
 * Work-item 32 s + 4 g + t holds acc[4 j + 2 h + c] = D(16 s + g + 8 h, 8 j + 2 t + c):
 *
 *     columns 8 j +       0     1   |  2     3   |  4     5   |  6     7
 *     row 16 s + g        t = 0     |  t = 1     |  t = 2     |  t = 3       acc[4 j], acc[4 j + 1]
 *     row 16 s + g + 8    t = 0     |  t = 1     |  t = 2     |  t = 3       acc[4 j + 2], acc[4 j + 3]
 *
 * What wgmma.cl adds: larger tiles, a ring of stages, the copy engine, split-K, the order of the tiles.
 *
 * Macros: those of types.h and gemm.h. A_TYPE and B_TYPE are both float16 or both bfloat16, ACC_TYPE is float32.
 * Work-groups must have 128 work-items.
 * Technique: wgmma, its descriptors and its swizzle over 128 bytes as in NVIDIA's PTX manual.
 */
#include "include/gemm.h"
#include "nvidia/ptx_wgmma_bare.h"

#define TILE 64   /* lines of a tile, and elements of K in each */
#define STEP_K 16 /* elements of K of one instruction */
#define QUARTET 128
#define AT_ONCE 16 /* loads that a work-item has in flight */

/* Where element k of a line lies in a tile. */
INLINE int place(const int line, const int k) { return line * TILE + (k / 8 ^ line % 8) * 8 + k % 8; }

/* Fills a tile from an operand whose lines are line_step elements apart. `along`: K is contiguous. `lines`, `depth`:
 * what is left of the matrix; the rest becomes zeros, which add nothing. Neighbouring work-items read neighbouring
 * elements: the first 64 those of one line (or k), the others those of the next. */
INLINE void fill(
    __local ushort *tile, __global const ushort *from, const bool along, const long line_step, const long k_step,
    const int lines, const int depth)
{
  const int fast = get_local_id(0) % TILE, upper = get_local_id(0) / TILE;
  ONCE for (int first = 0; first < TILE; first += 2 * AT_ONCE)
    UNROLL for (int n = 0; n < AT_ONCE; ++n) {
      const int slow = first + 2 * n + upper;
      const int line = along ? slow : fast, k = along ? fast : slow;
      tile[place(line, k)] = line < lines && k < depth ? from[line * line_step + k * k_step] : 0;
    }
}

/* The descriptor of a tile: 64 bits that count in 16 bytes. Bits 0 to 13: its address in local memory. 32 to 45: the
 * distance between atoms. 62 and 63: 1, chunks are swizzled over 128 bytes. */
INLINE ulong descriptor(__local const ushort *tile)
{
  return (ulong)((local_address(tile) & 0x3ffff) >> 4) | (ulong)(1024 >> 4) << 32 | 1UL << 62;
}

__kernel WORK_GROUP(QUARTET, 1, 1) void matmul_wgmma_bare(GEMM_ARGS)
{
  __local ushort tile_a[TILE * TILE] ALIGNED(1024);
  __local ushort tile_b[TILE * TILE] ALIGNED(1024);
  GEMM_BEGIN;
  const int j0 = get_group_id(0) * TILE;
  const int i0 = get_group_id(1) * TILE;

  float acc[32];
  UNROLL for (int e = 0; e < 32; ++e) acc[e] = 0;
  for (int t = 0; t < K; t += TILE) {
    __global const ushort *from_a = (__global const ushort *)a + A_INDEX(i0, t, lda);
    __global const ushort *from_b = (__global const ushort *)b + B_INDEX(t, j0, ldb);
    fill(tile_a, from_a, !TRANS_A, A_INDEX(1, 0, lda), A_INDEX(0, 1, lda), M - i0, K - t);
    fill(tile_b, from_b, TRANS_B, B_INDEX(0, 1, ldb), B_INDEX(1, 0, ldb), N - j0, K - t);
    stores_fence();
    barrier(CLK_LOCAL_MEM_FENCE);
    wgmma_fence();
    UNROLL for (int k = 0; k < TILE; k += STEP_K)
      wgmma(acc, descriptor(tile_a + k), descriptor(tile_b + k));
    wgmma_commit();
    wgmma_wait(acc);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const int item = get_local_id(0);
  const int row = i0 + item / 32 * 16 + item % 32 / 4;
  const int column = j0 + item % 4 * 2;
  UNROLL for (int e = 0; e < 32; ++e)
    STORE_RESULT(row + e / 2 % 2 * 8, column + e / 4 * 8 + e % 2, acc[e], RESULT);
}
