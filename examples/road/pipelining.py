"""Solutions of docs/road/13_pipelining.md: a ring's timetable, its bytes, and a ring in plain OpenCL C."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm

Array = np.ndarray[Any, Any]
SIDE = 8  # of the tiles of exercise 3, and of its work-groups


def finish(blocks: int, copy: float, multiply: float, stages: int) -> float:
    """Exercise 1, the copy engine: when the last block is multiplied. A copy starts as soon as its stage has
    been multiplied. Copies run side by side; multiplications do not.
    """
    ends: list[float] = []
    for block in range(blocks):
        free = ends[block - stages] if block >= stages else 0.0  # its stage was multiplied
        ends.append(max(free + copy, ends[-1] if ends else 0.0) + multiply)
    return ends[-1]


def finish_in_steps(blocks: int, copy: float, multiply: float, stages: int) -> float:
    """Exercise 1, the loop of the page, with two stages or more: a copy starts when a step begins, so after
    the block of that step has landed too. The first stages - 1 copies start before the loop.
    """
    begins: list[float] = []
    for block in range(blocks):
        started = begins[block - stages + 1] if block >= stages - 1 else 0.0
        begins.append(max(started + copy, begins[-1] + multiply if begins else 0.0))
    return begins[-1] + multiply


def stages_needed(copy: float, multiply: float) -> int:
    """Exercise 1: the fewest stages with which multiplying never waits, but for the first copy: for both."""
    return 1 + int(-(-copy // multiply))


def ring_bytes(tile: tuple[int, int, int], stages: int, pads: tuple[int, int] = (0, 0), size: int = 4) -> int:
    """Exercise 2: bytes of a ring of BM x BN x BK tiles, padded by so many elements after each k."""
    bm, bn, bk = tile
    return stages * bk * (bm + pads[0] + bn + pads[1]) * size


# Exercise 3: async_work_group_copy is OpenCL's own copy from global to local memory.
SOURCE = """
#define TILE (SIDE * SIDE)

event_t fetch(__local float *stage, __global const float *a, __global const float *b, int K, int N)
{
  event_t event = 0;
  for (int row = 0; row < SIDE; ++row) {
    event = async_work_group_copy(stage + row * SIDE, a + row * K, SIDE, event);
    event = async_work_group_copy(stage + TILE + row * SIDE, b + row * N, SIDE, event);
  }
  return event;
}

__kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1)))
void multiply(int N, int K, __global const float *a, __global const float *b, __global float *out)
{
  __local float ring[STAGES * 2 * TILE];
  event_t landed[STAGES];
  const int x = get_local_id(0), y = get_local_id(1), blocks = K / SIDE;
  a += get_group_id(1) * SIDE * K;
  b += get_group_id(0) * SIDE;
  for (int block = 0; block < min(STAGES - 1, blocks); ++block)
    landed[block] = fetch(ring + block * 2 * TILE, a + block * SIDE, b + block * SIDE * N, K, N);
  float sum = 0;
  for (int block = 0; block < blocks; ++block) {
    const int now = block % STAGES, next = block + STAGES - 1, filled = next % STAGES;
    if (next < blocks)
      landed[filled] = fetch(ring + filled * 2 * TILE, a + next * SIDE, b + next * SIDE * N, K, N);
    wait_group_events(1, &landed[now]);
    __local const float *tile_a = ring + now * 2 * TILE, *tile_b = tile_a + TILE;
    for (int k = 0; k < SIDE; ++k) sum += tile_a[y * SIDE + k] * tile_b[k * SIDE + x];
    barrier(CLK_LOCAL_MEM_FENCE); /* all have read the stage that the next turn fills */
  }
  out[get_global_id(1) * N + get_global_id(0)] = sum;
}
"""


def multiply(queue: cl.CommandQueue, a: Array, b: Array, stages: int) -> Array:
    """Exercise 3: a @ b of float32, with sides that are multiples of SIDE, by a ring of stages."""
    (m, k), n = a.shape, b.shape[1]
    if any(side % SIDE for side in (m, n, k)):
        raise ValueError(f"sides must be multiples of {SIDE}: {m} x {n} x {k}")
    if stages < 2:
        raise ValueError(f"stages must be 2 or more: with {stages} nothing is copied while it multiplies")
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, (m, n), np.float32)
    program = cl.Program(queue.context, SOURCE).build(options=[f"-DSIDE={SIDE}", f"-DSTAGES={stages}"])
    program.multiply(queue, (n, m), (SIDE, SIDE), np.int32(n), np.int32(k), x.data, y.data, out.data)
    result: Array = out.get()
    return result


def main() -> None:
    warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's compiler also says what went well
    for copy, each in ((1, 2), (3, 2), (9, 2)):
        enough = stages_needed(copy, each)
        engine, steps = finish(40, copy, each, enough), finish_in_steps(40, copy, each, enough)
        print(
            f"1. copy {copy}, multiply {each}: {enough} stages; 40 blocks end at {engine}, in steps {steps}"
        )
    padded = ring_bytes((128, 256, 8), 1, pads=(4, 0))
    print(f"2. a stage of 128 x 256 x 8 in NN: {padded} bytes; 232,448 hold {232_448 // padded}")
    queue, rng = pyclmm.default_queue(), np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((16, 8), (8, 24)))
    for stages in (2, 3, 4):
        print(f"3. {stages} stages, one block: right: {np.array_equal(multiply(queue, a, b, stages), a @ b)}")


if __name__ == "__main__":
    main()
