"""Solutions of docs/road/08_vector.md: whole vectors, aligned rows, and a product with float4."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

Array = np.ndarray[Any, Any]


def vectors_and_elements(n: int, lanes: int) -> tuple[int, int]:
    """Exercise 1: how many vectors of a row lie inside it, and how many elements are left."""
    return n // lanes, n % lanes


def aligned_rows(rows: int, n: int, itemsize: int = 4, alignment: int = 16) -> int:
    """Exercise 2: how many rows of an n-column matrix begin at a multiple of `alignment` bytes."""
    return sum(row * n * itemsize % alignment == 0 for row in range(rows))


# Exercise 3: each work-item sums four neighbouring columns of one row.
SOURCE = """
__kernel void multiply(
    int M, int N, int K, __global const float *a, __global const float *b, __global float *out)
{
  const int j = get_global_id(0) * 4, i = get_global_id(1);
  const int inside = min(4, N - j);
  float4 acc = 0;
  for (int k = 0; k < K; ++k) {
    float4 y = 0;
    if (inside == 4) y = vload4(0, b + k * N + j);
    else {
      float last[4] = {0, 0, 0, 0};
      for (int n = 0; n < inside; ++n) last[n] = b[k * N + j + n];
      y = vload4(0, last);
    }
    acc += a[i * K + k] * y;
  }
  float row[4];
  vstore4(acc, 0, row);
  for (int n = 0; n < inside; ++n) out[i * N + j + n] = row[n];
}
"""


def multiply(queue: cl.CommandQueue, a: Array, b: Array) -> Array:
    """Exercise 3: a @ b of float32 matrices. The last vector of a row may reach beyond it."""
    (m, k), n = a.shape, b.shape[1]
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, (m, n), np.float32)
    kernel = cl.Program(queue.context, SOURCE).build().multiply
    sizes = (np.int32(m), np.int32(n), np.int32(k))
    kernel(queue, (ceil(n / 4), m), None, *sizes, x.data, y.data, out.data)
    result: Array = out.get()
    return result
