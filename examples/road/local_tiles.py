"""Solutions of docs/road/05_tiled.md: loads counted, the widest tile, banks, and half as many barriers."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

Array = np.ndarray[Any, Any]
BANKS = 32  # of local memory, 4 bytes wide


def counted_loads(m: int, n: int, k: int, tw: int) -> int:
    """Exercise 1: elements of A and B that `tiled` loads, counted one by one."""
    count = 0
    for i0 in range(0, m, tw):
        for j0 in range(0, n, tw):
            for t in range(0, k, tw):
                count += sum(i0 + y < m and t + x < k for y in range(tw) for x in range(tw))
                count += sum(t + y < k and j0 + x < n for y in range(tw) for x in range(tw))
    return count


def loads(m: int, n: int, k: int, tw: int) -> int:
    """Exercise 1: the same as a formula."""
    return m * k * ceil(n / tw) + k * n * ceil(m / tw)


def widest_tile(local_bytes: int, work_items: int) -> int:
    """Exercise 1: the largest TW for float32: two tiles with a column of padding, TW x TW work-items."""
    tw = 1
    while 2 * (tw + 1) * (tw + 2) * 4 <= local_bytes and (tw + 1) ** 2 <= work_items:
        tw += 1
    return tw


def passes(row_length: int, work_items: int = 32) -> int:
    """Exercise 2: how often the busiest bank is asked if work-item x reads element (x, 0) of a tile."""
    return int(np.bincount([x * row_length % BANKS for x in range(work_items)]).max())


# Exercise 3: tiles of TW x 2 TW and 2 TW x TW. A work-item loads two elements of each.
SOURCE = """
__kernel void multiply(
    int M, int N, int K, __global const float *a, __global const float *b, __global float *out)
{
  __local float tile_a[TW][2 * TW + 1], tile_b[2 * TW][TW + 1];
  const int lj = get_local_id(0), li = get_local_id(1);
  const int j = get_global_id(0), i = get_global_id(1);
  float sum = 0;
  for (int t = 0; t < K; t += 2 * TW) {
    for (int part = 0; part < 2 * TW; part += TW) {
      const int ka = t + part + lj, kb = t + part + li;
      tile_a[li][part + lj] = i < M && ka < K ? a[i * K + ka] : 0;
      tile_b[part + li][lj] = kb < K && j < N ? b[kb * N + j] : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 2 * TW; ++k) sum += tile_a[li][k] * tile_b[k][lj];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (i < M && j < N) out[i * N + j] = sum;
}
"""


def multiply(queue: cl.CommandQueue, a: Array, b: Array, tw: int = 8) -> Array:
    """Exercise 3: a @ b of float32 matrices; tiles are twice as long along K as across."""
    (m, k), n = a.shape, b.shape[1]
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, (m, n), np.float32)
    kernel = cl.Program(queue.context, SOURCE).build([f"-DTW={tw}"]).multiply
    size, sizes = (ceil(n / tw) * tw, ceil(m / tw) * tw), (np.int32(m), np.int32(n), np.int32(k))
    kernel(queue, size, (tw, tw), *sizes, x.data, y.data, out.data)
    result: Array = out.get()
    return result
