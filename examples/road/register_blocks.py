"""Solutions of docs/road/07_block.md: the best block, its columns and banks, and a product of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BANKS = 32  # of local memory, 4 bytes wide


def best_block(registers: int) -> tuple[int, int]:
    """Exercise 1: TM <= TN with the fewest reads a multiply-add; sums and both fragments must fit."""
    sides = range(1, registers)
    fit = [(m, n) for m in sides for n in sides if m <= n and m * n + m + n <= registers]
    return min(fit, key=lambda block: 1 / block[0] + 1 / block[1])


def passes(columns: list[int]) -> int:
    """Exercise 2: how often the busiest bank is asked, if work-items read these columns of one row."""
    return int(np.bincount([column % BANKS for column in set(columns)]).max())


def multiply(a: Array, b: Array, tile: tuple[int, int, int]) -> Array:
    """Exercise 3: a @ b, tile after tile; each step of K adds an outer product to the sums."""
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk = tile
    out = np.empty((m, n), a.dtype)
    for i0 in range(0, m, bm):
        for j0 in range(0, n, bn):
            acc = np.zeros(out[i0 : i0 + bm, j0 : j0 + bn].shape, a.dtype)
            for t in range(0, k, bk):
                tile_a, tile_b = a[i0 : i0 + bm, t : t + bk], b[t : t + bk, j0 : j0 + bn]
                for x, y in zip(tile_a.T, tile_b, strict=True):
                    acc += np.outer(x, y)
            out[i0 : i0 + bm, j0 : j0 + bn] = acc
    return out


def main() -> None:
    for registers in (24, 80, 128):
        print("1. {} registers: {} x {}".format(registers, *best_block(registers)))
    apart = [4 * place for place in range(16)]
    print(f"2. columns side by side: {passes(list(range(16)))} times, 4 apart: {passes(apart)} times")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((37, 50), (50, 29)))
    print(f"3. 37 x 29 in tiles of 8 x 4 x 3: right: {np.array_equal(multiply(a, b, (8, 4, 3)), a @ b)}")


if __name__ == "__main__":
    main()
