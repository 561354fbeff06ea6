"""Solutions of docs/road/02_single_group.md: what fits a work-group, any size in one, and a sum by many."""

from __future__ import annotations

import warnings
from math import isqrt
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm

Array = np.ndarray[Any, Any]


def largest_square(work_items: int) -> int:
    """Exercise 1: the side of the largest square result, a work-item for each element."""
    return isqrt(work_items)


def seconds(m: int, n: int, k: int, rate: float, units: int) -> float:
    """Exercise 1: the least time on one of `units` compute units, which all do `rate` operations a second."""
    return 2 * m * n * k / (rate / units)


# Exercise 2: a work-item computes every WIDE-th column of every HIGH-th row.
# Exercise 3: each work-item sums its own k; then half of them add the sums of the other half, and so on.
SOURCE = """
__kernel void multiply(
    int M, int N, int K, __global const float *a, __global const float *b, __global float *out)
{
  for (int i = get_local_id(1); i < M; i += get_local_size(1))
    for (int j = get_local_id(0); j < N; j += get_local_size(0)) {
      float sum = 0;
      for (int k = 0; k < K; ++k) sum += a[i * K + k] * b[k * N + j];
      out[i * N + j] = sum;
    }
}

__kernel void dot_product(
    int K, __global const float *x, __global const float *y, __global float *out, __local float *sums)
{
  const int me = get_local_id(0), all = get_local_size(0);
  float sum = 0;
  for (int k = me; k < K; k += all) sum += x[k] * y[k];
  sums[me] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int left = all / 2; left > 0; left /= 2) {
    if (me < left) sums[me] += sums[me + left];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (me == 0) *out = sums[0];
}
"""


def multiply(queue: cl.CommandQueue, a: Array, b: Array, group: tuple[int, int] = (8, 4)) -> Array:
    """Exercise 2: a @ b of float32 matrices of any size, in one work-group of this size."""
    (m, k), n = a.shape, b.shape[1]
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, (m, n), np.float32)
    kernel = cl.Program(queue.context, SOURCE).build().multiply
    kernel(queue, group, group, np.int32(m), np.int32(n), np.int32(k), x.data, y.data, out.data)
    result: Array = out.get()
    return result


def dot_product(queue: cl.CommandQueue, x: Array, y: Array, work_items: int) -> np.float32:
    """Exercise 3: the sum of x[k] y[k] by a power of two of work-items."""
    if work_items < 1 or work_items & (work_items - 1):
        raise ValueError(f"work_items must be a power of two, such as 64: {work_items}")
    a, b, out = cla.to_device(queue, x), cla.to_device(queue, y), cla.empty(queue, 1, np.float32)
    kernel = cl.Program(queue.context, SOURCE).build().dot_product
    sums, size = cl.LocalMemory(4 * work_items), (work_items,)
    kernel(queue, size, size, np.int32(len(x)), a.data, b.data, out.data, sums)
    return np.float32(out.get()[0])


def main() -> None:
    warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's compiler also says what went well
    side = largest_square(1024)
    least = seconds(side, side, 512, rate=66.9e12, units=132)
    print(f"1. 1024 work-items: {side} x {side}; K = 512 takes one of 132 compute units {1e6 * least:.2f} us")
    queue, rng = pyclmm.default_queue(), np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((37, 50), (50, 29)))
    print(f"2. 37 x 29 in one work-group of 8 x 4: right: {np.array_equal(multiply(queue, a, b), a @ b)}")
    x, y = rng.integers(-4, 5, (2, 1000)).astype(np.float32)
    print(f"3. 1000 products by 64 work-items: {dot_product(queue, x, y, 64)}, NumPy: {x @ y}")


if __name__ == "__main__":
    main()
