"""Solutions of docs/road/11_packed.md: panels, register tiles and blocks of a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]
UNROLL = 4  # steps of K that a panel of A keeps together
LONGEST_KC, WIDEST_NC = 1024, 256  # steps of K, columns: see pyclmm/kernels/cpu/blocking.py


def panels_of_b(b: Matrix, nr: int) -> Matrix:
    """Exercise 1: panels of nr columns; in each, the nr elements of one k lie side by side."""
    k, n = b.shape
    panels = -(-n // nr)
    padded = np.zeros((k, panels * nr), b.dtype)
    padded[:, :n] = b
    return np.ascontiguousarray(padded.reshape(k, panels, nr).transpose(1, 0, 2))


def panels_of_a(a: Matrix, mr: int) -> Matrix:
    """Exercise 1: panels of mr rows, in which four k of a row lie side by side, row after row."""
    m, k = a.shape
    panels, steps = -(-m // mr), -(-k // UNROLL)
    padded = np.zeros((panels * mr, steps * UNROLL), a.dtype)
    padded[:m, :k] = a
    return np.ascontiguousarray(padded.reshape(panels, mr, steps, UNROLL).transpose(0, 2, 1, 3))


def multiply(a: Matrix, b: Matrix, mr: int, nr: int) -> Matrix:
    """Exercise 1: a @ b from panels alone, one register tile after another."""
    (m, k), n = a.shape, b.shape[1]
    rows, columns = panels_of_a(a, mr), panels_of_b(b, nr)
    out = np.zeros((len(rows) * mr, len(columns) * nr), a.dtype)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            tile = np.zeros((mr, nr), a.dtype)
            for step in range(k):
                tile += np.outer(row[step // UNROLL, :, step % UNROLL], column[step])
            out[i * mr : (i + 1) * mr, j * nr : (j + 1) * nr] = tile
    return out[:m, :n]


def tiles(registers: int, busy: int = 8) -> dict[tuple[int, int], float]:
    """Exercise 2: rows x vectors that fit, with at least `busy` sums -> loads for each multiply-add.

    Besides the sums there are the vectors of B, and one register for a number of A.
    """
    return {
        (rows, vectors): (rows + vectors) / (rows * vectors)
        for vectors in range(1, registers)
        for rows in range(1, registers)
        if rows * vectors + vectors + 1 <= registers and rows * vectors >= busy
    }


def blocks(l1: int, l2: int, tile: tuple[int, int], size: int) -> tuple[int, int, int]:
    """Exercise 3: (kc, mc, nc) of a tile of elements of `size` bytes; l1, l2: caches in bytes."""
    mr, nr = tile
    kc = min(LONGEST_KC, max(l1 // 2, l2 // 4) // (nr * size)) // 4 * 4
    sums = l2 // 8 // size
    mc = max(1, min(l2 // 2 // (kc * size), sums // nr) // mr) * mr
    nc = max(1, min(WIDEST_NC, sums // mc) // nr) * nr
    return kc, mc, nc


def main() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((37, 50), (50, 29)))
    print(f"1. 37 x 29 from panels: right: {np.array_equal(multiply(a, b, 6, 16), a @ b)}")
    for count in (16, 32):
        found = tiles(count)
        best = min(found, key=lambda tile: found[tile])
        print(f"2. {count} registers: {len(found)} tiles; {best} loads {found[best]:.3f} a multiply-add")
    print(f"3. 32 KiB and 1 MiB, 6 x 16 of float32: kc, mc, nc = {blocks(32 << 10, 1 << 20, (6, 16), 4)}")


if __name__ == "__main__":
    main()
