/* few_rows: A of wgmma_quantized.cl and wgmma_fragments.cl in local memory: for each slice of a step two boxes of ptx_map.h, 64
 * of K each.
 *
 *     RESIDENT 1: work-items store A of all steps, in pairs, in the order of k that the weights have; with IN_BLOCKS as it lies
 *     RESIDENT 0: the copy engine brings A of a step into a stage (stages.h), as it lies
 *
 * Macros: RESIDENT; STAGES (stages.h); CLUSTER 1 (ptx_map.h); those of weights.h.
 */
#include "nvidia/stages.h"
#include "nvidia/weights.h"

#ifndef RESIDENT
#error "few_rows.h needs RESIDENT"
#endif
#define BOX_BYTES (BM * 128)
#define A_BYTES (SLICES * 2 * BOX_BYTES)

#if RESIDENT
#define CHUNKS ((BM + 2 * TEAMS - 1) / (2 * TEAMS)) /* of 8 elements, that a work-item has of a slice */

/* What a work-item moves of A: chunk `OWN_LANE % 16` of every 2 TEAMS-th row of its slice. */
typedef struct {
  __global const A_T *next;
  long pitch; /* to its next row */
  int rows_left;
  uint place; /* of its first pair in a step's A */
} chunks_t;

INLINE chunks_t chunks_of(__global const A_T *a, const long lda, const int rows, const int k0)
{
  const int c = OWN_LANE % 16, row = 2 * TEAM + OWN_LANE / 16, first = IN_BLOCKS ? c : c % 4 * 4; /* piece p of a row: 16 bytes */
  const uint place = (SLICE * 2 + first / 8) * BOX_BYTES + row * 128 + (first % 8 ^ row % 8) * 16 + (IN_BLOCKS ? 0 : c / 4 * 4);
  return (chunks_t){a + row * lda + k0 + SLICE * DEPTH + 8 * c, 2 * TEAMS * lda, rows - row, place};
}

/* Moves A of the first `steps` steps, MANY at a time. */
#define MANY (8 / CHUNKS ? 8 / CHUNKS : 1)
INLINE void move_chunks(chunks_t chunks, __local uchar *memory, const int steps, const int own_k, const int k_end)
{
  for (int first = 0; first < steps; first += MANY) {
    uint4 held[MANY][CHUNKS];
    UNROLL for (int i = 0; i < MANY; ++i)
      UNROLL for (int p = 0; p < CHUNKS; ++p)
        if (first + i < steps && own_k + (first + i) * STEP < k_end && chunks.rows_left > 2 * TEAMS * p)
          held[i][p] = *(__global const uint4 *)(chunks.next + (first + i) * STEP + p * chunks.pitch);
    UNROLL for (int i = 0; i < MANY; ++i)
      UNROLL for (int p = 0; p < CHUNKS; ++p)
        if (first + i < steps && chunks.rows_left > 2 * TEAMS * p) {
          __local uchar *to = memory + (first + i) * A_BYTES + p * 2 * TEAMS * 128;
#if IN_BLOCKS
          *(__local uint4 *)(to + chunks.place) = held[i][p];
#else
          UNROLL for (int e = 0; e < 4; ++e) *(__local uint *)(to + (chunks.place ^ e * 16)) = ((const uint *)&held[i][p])[e];
#endif
        }
  }
}
#else
/* Starts the copies of A's step at `k` into the stage at `ring`, with zeros outside of A. One work-item calls this. */
INLINE void fill_stage(const stages_t stages, const ring_t ring, __global const ulong *map, const int m0, const int k)
{
  const uint bar = begin_filling(stages, ring, A_BYTES);
  UNROLL for (int box = 0; box < 2 * SLICES; ++box)
    copy_box(stages.tiles + ring.stage * A_BYTES + box * BOX_BYTES, map, k + box * 64, m0, 0, bar);
}

#endif
