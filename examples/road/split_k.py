"""Solutions of docs/road/12_split_k.md: waves, a product in two launches, and the order of sums."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

Array = np.ndarray[Any, Any]


def waves(tiles: int, units: int) -> tuple[int, float]:
    """Exercise 1: how many waves the tiles take, one work-group a compute unit, and the share that works."""
    count = ceil(tiles / units)
    return count, tiles / (count * units)


def best_split(tiles: int, units: int, most: int) -> int:
    """Exercise 1: into how many ranges of K, at most `most`, to cut all tiles so that they end earliest."""

    def time(ranges: int) -> float:
        return ceil(tiles * ranges / units) / ranges

    return min(range(1, most + 1), key=lambda ranges: (time(ranges), ranges))


# Exercise 2: dimension 2 is the range of K. A second launch adds the ranges in their order.
SOURCE = """
__kernel void multiply_range(
    int M, int N, int K, int k_range, __global const float *a, __global const float *b,
    __global float *partial)
{
  const int j = get_global_id(0), i = get_global_id(1), range = get_global_id(2);
  float sum = 0;
  for (int k = range * k_range; k < min(K, (range + 1) * k_range); ++k) sum += a[i * K + k] * b[k * N + j];
  partial[(range * M + i) * N + j] = sum;
}

__kernel void add_ranges(int size, int ranges, __global const float *partial, __global float *out)
{
  const int at = get_global_id(0);
  float sum = 0;
  for (int range = 0; range < ranges; ++range) sum += partial[range * size + at];
  out[at] = sum;
}
"""


def multiply(queue: cl.CommandQueue, a: Array, b: Array, ranges: int) -> Array:
    """Exercise 2: a @ b of float32 matrices. The queue is in order, so the second launch waits."""
    (m, k), n = a.shape, b.shape[1]
    x, y = cla.to_device(queue, a), cla.to_device(queue, b)
    partial, out = cla.empty(queue, (ranges, m, n), np.float32), cla.empty(queue, (m, n), np.float32)
    program = cl.Program(queue.context, SOURCE).build()
    sizes = (np.int32(m), np.int32(n), np.int32(k), np.int32(ceil(k / ranges)))
    program.multiply_range(queue, (n, m, ranges), None, *sizes, x.data, y.data, partial.data)
    program.add_ranges(queue, (m * n,), None, np.int32(m * n), np.int32(ranges), partial.data, out.data)
    result: Array = out.get()
    return result


def sum_in_ranges(numbers: Array, ranges: int) -> np.float32:
    """Exercise 3: the sum in float32, one after another in each range, then range after range."""
    parts = [np.cumsum(part, dtype=np.float32)[-1] for part in np.array_split(numbers, ranges)]
    return np.float32(np.cumsum(parts, dtype=np.float32)[-1])
