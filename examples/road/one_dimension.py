"""Solutions of docs/road/04_flat.md: idle work-items, a division without dividing, and ids in squares."""

from __future__ import annotations

import warnings
from math import ceil
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm

Array = np.ndarray[Any, Any]
SIDE = 16  # of a square; a work-group has SIDE x SIDE work-items


def work_items(m: int, n: int) -> tuple[int, int]:
    """Exercise 1: how many `naive` starts in work-groups of 16 x 16, and `flat` in work-groups of 256."""
    return ceil(m / 16) * ceil(n / 16) * 256, ceil(m * n / 256) * 256


def magic(n: int) -> tuple[int, int]:
    """Exercise 2: (factor, shift) with id // n == id * factor >> shift for every id below 2^32."""
    shift = 32 + (n - 1).bit_length()
    return (1 << shift) // n + 1, shift


def rows_and_columns(places: list[tuple[int, int]]) -> int:
    """Exercise 3: rows of A and columns of B that these elements of out need."""
    return len({i for i, _ in places}) + len({j for _, j in places})


def in_rows(number: int, n: int) -> tuple[int, int]:
    """Exercise 3: the row and column of a work-item of `flat`."""
    return number // n, number % n


def in_squares(number: int, n: int) -> tuple[int, int]:
    """Exercise 3: the same where the numbers fill one square after another."""
    square, inside = divmod(number, SIDE * SIDE)
    squares = ceil(n / SIDE)  # in a row of squares
    return square // squares * SIDE + inside // SIDE, square % squares * SIDE + inside % SIDE


# Exercise 3: in_squares in OpenCL C.
SOURCE = """
__kernel void multiply(
    int M, int N, int K, __global const float *a, __global const float *b, __global float *out)
{
  const int square = get_global_id(0) / (SIDE * SIDE), inside = get_global_id(0) % (SIDE * SIDE);
  const int squares = (N + SIDE - 1) / SIDE;
  const int i = square / squares * SIDE + inside / SIDE;
  const int j = square % squares * SIDE + inside % SIDE;
  if (i >= M || j >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += a[i * K + k] * b[k * N + j];
  out[i * N + j] = sum;
}
"""


def multiply(queue: cl.CommandQueue, a: Array, b: Array) -> Array:
    """Exercise 3: a @ b of float32 matrices of any size, on a 1-D NDRange in squares."""
    (m, k), n = a.shape, b.shape[1]
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, (m, n), np.float32)
    kernel = cl.Program(queue.context, SOURCE).build([f"-DSIDE={SIDE}"]).multiply
    size = (work_items(m, n)[0],)
    kernel(queue, size, None, np.int32(m), np.int32(n), np.int32(k), x.data, y.data, out.data)
    result: Array = out.get()
    return result


def main() -> None:
    warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's compiler also says what went well
    for m, n in ((1000, 3), (512, 512)):
        naive, flat = work_items(m, n)
        print(f"1. {m} x {n}: naive starts {naive} work-items, flat {flat}")
    for n in (3, 7, 512):
        factor, shift = magic(n)
        at = [n - 1, n, 2**32 // n * n - 1, 2**32 - 1]
        right = all(number // n == number * factor >> shift for number in at)
        print(f"2. id / {n} = id x {factor} >> {shift}: right: {right}")
    for way in (in_rows, in_squares):
        print(f"3. {way.__name__}: {rows_and_columns([way(x, 512) for x in range(256)])} rows and columns")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((37, 50), (50, 29)))
    print(f"3. 37 x 29 in squares: right: {np.array_equal(multiply(pyclmm.default_queue(), a, b), a @ b)}")


if __name__ == "__main__":
    main()
