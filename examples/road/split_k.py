"""Solutions of docs/road/12_split_k.md: waves, a product in two launches, and the order of sums."""

from __future__ import annotations

import warnings
from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm

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


def main() -> None:
    warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's compiler also says what went well
    for tiles in (4, 24, 132):
        count, share = waves(tiles, 132)
        few, many = (best_split(tiles, 132, most) for most in (8, 40))
        print(f"1. {tiles} tiles: {count} wave, {share:.0%} work; into {few} ranges, or {many} of at most 40")
    queue, rng = pyclmm.default_queue(), np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 1000), (1000, 4)))
    one, again, other = (multiply(queue, a, b, ranges) for ranges in (8, 8, 1))
    print(f"2. the same bits again: {np.array_equal(one, again)}; in 1 range: {np.array_equal(one, other)}")
    numbers = np.random.default_rng(12).random(1 << 16, dtype=np.float32)
    for ranges in (1, 16, 256):
        error = sum_in_ranges(numbers, ranges) - numbers.sum(dtype=np.float64)
        print(f"3. 65,536 numbers in {ranges} ranges: error {abs(error):.1e}")


if __name__ == "__main__":
    main()
