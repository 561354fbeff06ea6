"""Solutions of docs/road/09_double_buffer.md: a timetable, work-groups that fit, and a kernel."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

Array = np.ndarray[Any, Any]


def seconds(steps: int, load: float, multiply: float, pairs: int) -> float:
    """Exercise 1: with one pair of tiles each step waits; with two, loads and multiply-adds overlap."""
    if pairs == 1:
        return steps * (load + multiply)
    return load + (steps - 1) * max(load, multiply) + multiply


def work_groups(tile: tuple[int, int, int], pairs: int, local_bytes: int, itemsize: int = 4) -> int:
    """Exercise 2: how many work-groups' tiles local memory holds at a time."""
    bm, bn, bk = tile
    return local_bytes // (pairs * bk * (bm + bn) * itemsize)


# Exercise 3: `tiled` with two pairs of tiles, and one barrier a step.
SOURCE = """
__kernel void multiply(
    int M, int N, int K, __global const float *a, __global const float *b, __global float *out)
{
  __local float tile_a[2][TW][TW], tile_b[2][TW][TW];
  const int lj = get_local_id(0), li = get_local_id(1);
  const int j = get_global_id(0), i = get_global_id(1);
  float sum = 0;
  for (int t = -TW, now = 1; t < K; t += TW, now = 1 - now) {
    const int ka = t + TW + lj, kb = t + TW + li;
    barrier(CLK_LOCAL_MEM_FENCE);
    tile_a[1 - now][li][lj] = i < M && ka < K ? a[i * K + ka] : 0;
    tile_b[1 - now][li][lj] = kb < K && j < N ? b[kb * N + j] : 0;
    if (t >= 0)
      for (int k = 0; k < TW; ++k) sum += tile_a[now][li][k] * tile_b[now][k][lj];
  }
  if (i < M && j < N) out[i * N + j] = sum;
}
"""


def multiply(queue: cl.CommandQueue, a: Array, b: Array, tw: int = 8) -> Array:
    """Exercise 3: a @ b of float32 matrices. The first turn only loads."""
    (m, k), n = a.shape, b.shape[1]
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, (m, n), np.float32)
    kernel = cl.Program(queue.context, SOURCE).build([f"-DTW={tw}"]).multiply
    size, sizes = (ceil(n / tw) * tw, ceil(m / tw) * tw), (np.int32(m), np.int32(n), np.int32(k))
    kernel(queue, size, (tw, tw), *sizes, x.data, y.data, out.data)
    result: Array = out.get()
    return result
