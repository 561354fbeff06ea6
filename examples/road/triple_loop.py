"""Solutions of docs/road/01_sequential.md: a chain of additions, six orders of loops, and exact sums."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from math import fsum
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def chain_seconds(m: int, n: int, k: int, latency: int, clock: float) -> float:
    """Exercise 1: each addition waits `latency` cycles for the one before; `clock` in cycles a second."""
    return m * n * k * latency / clock


def walk(order: str, m: int, n: int, k: int) -> Iterator[tuple[int, int, int]]:
    """Exercise 2: (i, j, k) in the order of three nested loops: "ijk" has i outside and k inside."""
    length = {"i": m, "j": n, "k": k}
    for place in product(*(range(length[loop]) for loop in order)):
        at = dict(zip(order, place, strict=True))
        yield at["i"], at["j"], at["k"]


def multiply(a: Array, b: Array, order: str) -> Array:
    """Exercise 2: a @ b by three loops in any order."""
    out = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i, j, k in walk(order, a.shape[0], b.shape[1], a.shape[1]):
        out[i, j] += a[i, k] * b[k, j]
    return out


def steps(order: str, n: int, k: int) -> tuple[int, int, int]:
    """Exercise 2: elements from one read of A, of B and of out to the next one in the innermost loop."""
    return {"k": (1, n, 0), "j": (0, 1, 1), "i": (k, 0, n)}[order[2]]


def plain_sum(x: Array, y: Array) -> np.float32:
    """Exercise 3: the sum of x[k] y[k], rounded to float32 after every addition."""
    total = np.float32(0)
    for product_ in x * y:
        total += product_
    return total


def wide_sum(x: Array, y: Array) -> np.float32:
    """Exercise 3: the same in float64, rounded once: what `sequential` does."""
    return np.float32(sum(x.astype(np.float64) * y))


def compensated_sum(x: Array, y: Array) -> np.float32:
    """Exercise 3: in float32 alone. `lost` is what the last addition rounded away (Kahan 1965)."""
    total = lost = np.float32(0)
    for product_ in x * y:
        term = product_ - lost
        larger = total + term
        lost = (larger - total) - term
        total = larger
    return total


def main() -> None:
    seconds = chain_seconds(512, 512, 512, latency=4, clock=2.6e9)
    print(f"1. 512 cubed, 4 cycles a sum, 2.6 GHz: {seconds:.3f} s of waiting")
    print("2. elements from one read to the next, N = K = 512:")
    for order in map("".join, permutations("ijk")):
        far = [apart for apart in steps(order, 512, 512) if apart > 1]
        jumps = "never by a whole row" if not far else f"by a whole row in {len(far)} of three"
        print(f"   {order}: A, B, out = {steps(order, 512, 512)}, {jumps}")
    x, y = np.random.default_rng(1).standard_normal((2, 20_000)).astype(np.float32)
    exact = fsum(x.astype(np.float64) * y)
    for way in (plain_sum, wide_sum, compensated_sum):
        print(f"3. {way.__name__}: error {abs(float(way(x, y)) - exact):.1e}")


if __name__ == "__main__":
    main()
