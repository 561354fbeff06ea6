"""Solutions of docs/road/10_register.md: what a register tile costs, where it lies, and one by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

SUB_GROUP = 32  # work-items that execute together
MULTIPLY_ADDS = 128  # a cycle and compute unit of the H200, float32
READ_CYCLES = 4  # of a compute unit: 32 work-items read 16 bytes each
BANKS = 32  # of local memory, 4 bytes wide


def cycles(tm: int, tn: int) -> tuple[float, float]:
    """Exercise 1: cycles that a sub-group's tm x tn sums multiply, and read local memory, for each k."""
    return SUB_GROUP * tm * tn / MULTIPLY_ADDS, (tm + tn) / 4 * READ_CYCLES


def registers(tm: int, tn: int) -> int:
    """Exercise 1: sums, and two sets of fragments. Addresses come on top."""
    return tm * tn + 2 * (tm + tn)


def best_tile(most_registers: int, sides: Iterable[int]) -> tuple[int, int]:
    """Exercise 1: the tile that waits least for local memory; of equal ones the one with fewest registers."""
    sides = tuple(sides)
    fit = [(m, n) for m in sides for n in sides if m <= n and registers(m, n) <= most_registers]

    def rank(tile: tuple[int, int]) -> tuple[float, int]:
        multiply, read = cycles(*tile)
        return read / multiply, registers(*tile)

    return min(fit, key=rank)


def columns(place: int, tn: int, places: int, chunk: int = 4) -> list[int]:
    """Exercise 2: the columns of work-item `place` of `places` side by side, in chunks that are far apart."""
    return [(c // chunk * places + place) * chunk + c % chunk for c in range(tn)]


def passes(starts: Iterable[int], chunk: int = 4) -> int:
    """Exercise 2: how often local memory is asked, if work-items read `chunk` words from these words on."""
    words = {start + word for start in starts for word in range(chunk)}
    return int(np.bincount([word % BANKS for word in words]).max())


# Exercise 3: no local memory; each work-item computes 4 x 4 sums.
SOURCE = """
__kernel void multiply(
    int M, int N, int K, __global const float *a, __global const float *b, __global float *out)
{
  const int j0 = get_global_id(0) * 4, i0 = get_global_id(1) * 4;
  float acc[4][4];
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c) acc[r][c] = 0;
  for (int k = 0; k < K; ++k) {
    float fa[4], fb[4];
    for (int r = 0; r < 4; ++r) fa[r] = i0 + r < M ? a[(i0 + r) * K + k] : 0;
    for (int c = 0; c < 4; ++c) fb[c] = j0 + c < N ? b[k * N + j0 + c] : 0;
    for (int r = 0; r < 4; ++r)
      for (int c = 0; c < 4; ++c) acc[r][c] += fa[r] * fb[c];
  }
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c)
      if (i0 + r < M && j0 + c < N) out[(i0 + r) * N + j0 + c] = acc[r][c];
}
"""


def multiply(
    queue: cl.CommandQueue, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Exercise 3: a @ b of float32 matrices, 4 x 4 elements a work-item."""
    (m, k), n = a.shape, b.shape[1]
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, (m, n), np.float32)
    kernel = cl.Program(queue.context, SOURCE).build().multiply
    sizes = (np.int32(m), np.int32(n), np.int32(k))
    kernel(queue, (-(-n // 4), -(-m // 4)), None, *sizes, x.data, y.data, out.data)
    result: np.ndarray[Any, Any] = out.get()
    return result
