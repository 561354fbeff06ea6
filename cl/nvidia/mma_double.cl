/* mma_double: out = A B in float64 on the matrix units: 16 x 8 x MMA_K fragments by mma.sync, tiles
 * filled by cp.async. (MMA_K 4: sm_80's only one is 8 x 8 x 4; 8 and 16 need sm_90.)
 *
 * A fragment, work-item 4 g + t of a sub-group:
 *   a[h + 2 q]  A: row g + 8 h, k = t + 4 q       b[q]  B: k = t + 4 q, column g
 *   d[2 h + c]  D: row g + 8 h, column 2 t + c
 *
 * A tile lies as its operand does, in lines of K of one row, or of rows at one k. A line is 4 elements
 * longer than the tile: the 16 work-items that read at once, 4 lines x 4 elements, meet 16 banks of
 * 8 bytes.
 *
 * Macros: BM BN BK SGM SGN STAGES GROUP; MMA_K 4, 8, 16; VEC 2 where both operands lie on multiples of
 * 16 bytes, else 1; those of the headers.
 */
#include "include/attributes.h"
#include "include/gemm.h"
#include "include/tile_order.h"
#include "nvidia/ptx_copy.h"
#include "nvidia/fragment.h"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(SGM) || !defined(SGN) || \
    !defined(STAGES) || !defined(GROUP) || !defined(MMA_K) || !defined(VEC)
#error "mma_double.cl needs BM BN BK SGM SGN STAGES GROUP MMA_K VEC"
#endif
#define LINE_A (TRANS_A ? BM : BK)
#define LINE_B (TRANS_B ? BK : BN)
#define LINES_A (TRANS_A ? BK : BM)
#define LINES_B (TRANS_B ? BN : BK)
#define AT_A(m, k) (TRANS_A ? (k) * (BM + 4) + (m) : (m) * (BK + 4) + (k))
#define AT_B(k, n) (TRANS_B ? (n) * (BK + 4) + (k) : (k) * (BN + 4) + (n))
#define SIZE_A (LINES_A * (LINE_A + 4))
#define SIZE_B (LINES_B * (LINE_B + 4))
#define STAGE (SIZE_A + SIZE_B)
#define SG_COLUMNS (BN / SGN)
#define WORK_ITEMS (32 * (BM / SGM) * SG_COLUMNS)
#define MT (SGM / 16)
#define NT (SGN / 8)
#define QUARTERS (MMA_K / 4)
#define STEPS (BK / MMA_K)
#define COPIES_A (LINES_A * LINE_A / VEC / WORK_ITEMS)
#define COPIES_B (LINES_B * LINE_B / VEC / WORK_ITEMS)
#define COPIES (COPIES_A + COPIES_B)

static inline void mma_double(double *d, const double *a, const double *b)
{
#if MMA_K == 16
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3},"
               " {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%0,%1,%2,%3};"
               : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
               : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
                 "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#elif MMA_K == 8
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"
               " {%0,%1,%2,%3};"
               : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
               : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
  for (int h = 0; h < 2; ++h)
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(d[2 * h]), "+d"(d[2 * h + 1]) : "d"(a[h]), "d"(b[0]));
#endif
}

/* Copy i of this work-item's share of a tile of lines of `length` elements: VEC elements of line y + i
 * WORK_ITEMS / (length / VEC), zeros where that is not under limit_y. `bytes` of a copy lie inside. */
static inline void copy_share(
    const uint to, __global const double *source, const long ld, const int length, const int i, const int y,
    const int limit_y, const int bytes)
{
  const int line = i * (WORK_ITEMS / (length / VEC));
  const int inside = y + line < limit_y ? bytes : 0;
  if (VEC == 2) copy_16(to + line * (length + 4) * 8, source + line * ld, inside);
  else copy_8(to + line * (length + 4) * 8, source + line * ld, inside);
}

/* Bytes of a copy that begins at element x of a line of `limit`. */
static inline int bytes_inside(const int x, const int limit) { return min(max((limit - x) * 8, 0), 8 * VEC); }

static inline void load_fragments(
    double fa[MT][2 * QUARTERS], double fb[NT][QUARTERS], __local const double *tile_a,
    __local const double *tile_b, const int k)
{
  const int sub_group = get_local_id(0) / 32;
  const int g = get_local_id(0) % 32 / 4;
  const int t = get_local_id(0) % 4;
  const int m = sub_group / SG_COLUMNS * SGM + g;
  const int n = sub_group % SG_COLUMNS * SGN + g;
  UNROLL for (int i = 0; i < MT; ++i)
    UNROLL for (int e = 0; e < 2 * QUARTERS; ++e)
      fa[i][e] = tile_a[AT_A(m + 16 * i + e % 2 * 8, k + t + e / 2 * 4)];
  UNROLL for (int j = 0; j < NT; ++j)
    UNROLL for (int e = 0; e < QUARTERS; ++e) fb[j][e] = tile_b[AT_B(k + t + e * 4, n + 8 * j)];
}

__kernel WORK_GROUP(WORK_ITEMS, 1, 1) void matmul_mma_double(GEMM_ARGS)
{
  __local double tiles[STAGES * STAGE] ALIGNED(16);
  GEMM_BEGIN;
  const int2 origin = tile_at(get_group_id(0), (M + BM - 1) / BM, (N + BN - 1) / BN) * (int2)(BM, BN);
  const int blocks = (K + BK - 1) / BK;
  const uint tile0 = local_address(tiles);
  double acc[MT][4 * NT];
  UNROLL for (int i = 0; i < MT; ++i)
    UNROLL for (int j = 0; j < 4 * NT; ++j) acc[i][j] = 0;

  /* Of each operand: the line and element of this work-item's first copy, in the tile and in all. */
  const int id = get_local_id(0);
  const int line_a = id / (LINE_A / VEC), line_b = id / (LINE_B / VEC);
  const int at_a = id % (LINE_A / VEC) * VEC, at_b = id % (LINE_B / VEC) * VEC;
  const uint to_a = (line_a * (LINE_A + 4) + at_a) * 8;
  const uint to_b = (SIZE_A + line_b * (LINE_B + 4) + at_b) * 8;
  __global const double *from_a = a + (TRANS_A ? line_a * lda + origin.s0 : (origin.s0 + line_a) * lda) + at_a;
  __global const double *from_b = b + (TRANS_B ? (origin.s1 + line_b) * ldb : line_b * ldb + origin.s1) + at_b;

  /* Copy c of the block that is `filled`; past the last block, of zeros that nobody reads. */
  int filled = 0;
#define COPY(c)                                                                                     \
  do {                                                                                              \
    const uint stage_ = tile0 + filled % STAGES * (STAGE * 8);                                      \
    const int k_ = filled * BK;                                                                     \
    if ((c) < COPIES_A)                                                                             \
      copy_share(stage_ + to_a, from_a, lda, LINE_A, c, (TRANS_A ? k_ : origin.s0) + line_a,        \
                 TRANS_A ? K : M, bytes_inside(at_a + (TRANS_A ? origin.s0 : k_), TRANS_A ? M : K)); \
    else                                                                                            \
      copy_share(stage_ + to_b, from_b, ldb, LINE_B, (c) - COPIES_A,                                \
                 (TRANS_B ? origin.s1 : k_) + line_b, TRANS_B ? N : K,                               \
                 bytes_inside(at_b + (TRANS_B ? k_ : origin.s1), TRANS_B ? K : N));                 \
  } while (0)
#define FILLED                                    \
  do {                                            \
    copies_commit();                              \
    ++filled;                                     \
    from_a += TRANS_A ? BK * lda : BK;            \
    from_b += TRANS_B ? BK : BK * ldb;            \
  } while (0)
  for (int s = 0; s < STAGES - 1; ++s) {
    UNROLL for (int c = 0; c < COPIES; ++c) COPY(c);
    FILLED;
  }
  for (int block = 0; block < blocks; ++block) {
    __local const double *tile_a = tiles + block % STAGES * STAGE;
    copies_wait(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    double fa[2][MT][2 * QUARTERS];
    double fb[2][NT][QUARTERS];
    load_fragments(fa[0], fb[0], tile_a, tile_a + SIZE_A, 0);
    UNROLL for (int step = 0; step < STEPS; ++step) {
      if (step + 1 < STEPS)
        load_fragments(fa[(step + 1) % 2], fb[(step + 1) % 2], tile_a, tile_a + SIZE_A, (step + 1) * MMA_K);
      UNROLL for (int i = 0; i < MT; ++i) {
        UNROLL for (int j = 0; j < NT; ++j) mma_double(acc[i] + 4 * j, fa[step % 2][i], fb[step % 2][j]);
        /* the next block's copies, spread over this block's multiplications */
        UNROLL for (int c = 0; c < COPIES; ++c)
          if (c * STEPS * MT / COPIES == step * MT + i) COPY(c);
      }
    }
    FILLED;
  }
  UNROLL for (int i = 0; i < MT; ++i)
    STORE_FRAGMENTS(origin.s0 + id / 32 / SG_COLUMNS * SGM + 16 * i + id % 32 / 4,
                    origin.s1 + id / 32 % SG_COLUMNS * SGN, acc[i], NT);
}
