"""Solutions of docs/road/06_strip.md: reads of a strip, shapes of a tile, and strips by hand."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

Array = np.ndarray[Any, Any]


def local_reads(m: int, n: int, k: int, tm: int) -> int:
    """Exercise 1: elements read from local memory: for each k, tm of A and one of B for tm multiply-adds."""
    return sum(tm + 1 for _ in range(0, m, tm)) * n * k


def loads(m: int, n: int, k: int, bm: int, bn: int) -> int:
    """Exercise 2: elements loaded from global memory by tiles of bm x bn."""
    return m * k * ceil(n / bn) + k * n * ceil(m / bm)


def best_shape(m: int, n: int, k: int, elements: int) -> tuple[int, int]:
    """Exercise 2: the tile that loads least, a square. 64 x 16 loads 1.25 times as much as 32 x 32."""
    shapes = [(bm, elements // bm) for bm in range(1, elements + 1) if elements % bm == 0]
    return min(shapes, key=lambda shape: loads(m, n, k, *shape))


# Exercise 3: no local memory; each work-item sums TM elements of one column.
SOURCE = """
__kernel void multiply(
    int M, int N, int K, __global const float *a, __global const float *b, __global float *out)
{
  const int j = get_global_id(0), i0 = get_global_id(1) * TM;
  float acc[TM];
  for (int m = 0; m < TM; ++m) acc[m] = 0;
  for (int k = 0; k < K; ++k) {
    const float y = b[k * N + j];
    for (int m = 0; m < TM; ++m)
      if (i0 + m < M) acc[m] += a[(i0 + m) * K + k] * y;
  }
  for (int m = 0; m < TM; ++m)
    if (i0 + m < M) out[(i0 + m) * N + j] = acc[m];
}
"""


def multiply(queue: cl.CommandQueue, a: Array, b: Array, tm: int = 8) -> Array:
    """Exercise 3: a @ b of float32 matrices. There is a work-item for each column, so none lies beside it."""
    (m, k), n = a.shape, b.shape[1]
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, (m, n), np.float32)
    kernel = cl.Program(queue.context, SOURCE).build([f"-DTM={tm}"]).multiply
    sizes = (np.int32(m), np.int32(n), np.int32(k))
    kernel(queue, (n, ceil(m / tm)), None, *sizes, x.data, y.data, out.data)
    result: Array = out.get()
    return result
