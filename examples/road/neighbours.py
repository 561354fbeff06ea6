"""Solutions of docs/road/03_naive.md: work-items outside the result, cache lines, and B stored transposed."""

from __future__ import annotations

import warnings
from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm

Array = np.ndarray[Any, Any]
SUB_GROUP = 32  # work-items that execute together
LINE = 32  # float32 numbers in a line of 128 bytes


def global_size(m: int, n: int, group: tuple[int, int]) -> tuple[int, int]:
    """Exercise 1: columns and rows of the NDRange, rounded up to whole work-groups of (columns, rows)."""
    return ceil(n / group[0]) * group[0], ceil(m / group[1]) * group[1]


def idle_share(m: int, n: int, group: tuple[int, int]) -> float:
    """Exercise 1: the share of work-items that lie outside out."""
    columns, rows = global_size(m, n, group)
    return 1 - m * n / (columns * rows)


def lines(along: str, n: int, k_total: int, *, b_transposed: bool = False) -> tuple[int, int, int]:
    """Exercises 2 and 3: lines of A, B and out that a sub-group asks for in one step of k.

    Its work-items lie side by side along a row of out (`along` is "row") or along a column.
    """
    places = [(0, item) if along == "row" else (item, 0) for item in range(SUB_GROUP)]
    a = {i * k_total // LINE for i, _ in places}
    b = {(j * k_total if b_transposed else j) // LINE for _, j in places}
    out = {(i * n + j) // LINE for i, j in places}
    return len(a), len(b), len(out)


# Exercise 3: b has N rows of K elements.
SOURCE = """
__kernel void multiply(
    int M, int N, int K, __global const float *a, __global const float *b, __global float *out)
{
  const int j = get_global_id(0), i = get_global_id(1);
  if (i >= M || j >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += a[i * K + k] * b[j * K + k];
  out[i * N + j] = sum;
}
"""


def multiply(queue: cl.CommandQueue, a: Array, b: Array, group: tuple[int, int] = (8, 4)) -> Array:
    """Exercise 3: a @ b.T of float32 matrices; b is read as it is stored."""
    (m, k), n = a.shape, b.shape[0]
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, (m, n), np.float32)
    kernel = cl.Program(queue.context, SOURCE).build().multiply
    sizes = (np.int32(m), np.int32(n), np.int32(k))
    kernel(queue, global_size(m, n, group), group, *sizes, x.data, y.data, out.data)
    result: Array = out.get()
    return result


def main() -> None:
    warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's compiler also says what went well
    for m, n in ((513, 513), (1, 1000)):
        print(f"1. {m} x {n}, work-groups of 16 x 16: {idle_share(m, n, (16, 16)):.1%} are idle")
    for along in ("row", "column"):
        print(f"2. lines of A, B and out, along a {along}: {lines(along, 512, 512)}")
    for along in ("row", "column"):
        print(f"3. along a {along}, B transposed: {lines(along, 512, 512, b_transposed=True)}")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((37, 50), (29, 50)))
    right = np.array_equal(multiply(pyclmm.default_queue(), a, b), a @ b.T)
    print(f"3. 37 x 29, B stored transposed: right: {right}")


if __name__ == "__main__":
    main()
