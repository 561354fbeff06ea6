"""Solutions of docs/road/14_matrix_units.md: fragments of matrix instructions, and what a stage takes."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LANES = np.arange(32)
G, T = LANES // 4, LANES % 4  # the row of four work-items that a work-item is in, and its place there


def fragments_of_a(a: Array) -> Array:
    """Exercise 1: A (16 x 16) as [work-item, register, half]. Register h + 2 q: row g + 8 h, k 8 q + 2 t."""
    held = [[a[G + 8 * h, 8 * q + 2 * T + half] for half in (0, 1)] for q in (0, 1) for h in (0, 1)]
    return np.array(held).transpose(2, 0, 1)


def fragments_of_b(b: Array) -> Array:
    """Exercise 1: B (16 x 8) as [work-item, register, half]. Register q: column g, k 8 q + 2 t."""
    held = [[b[8 * q + 2 * T + half, G] for half in (0, 1)] for q in (0, 1)]
    return np.array(held).transpose(2, 0, 1)


def mma(d: Array, a: Array, b: Array) -> Array:
    """Exercise 1: d + a b, all of them fragments. Register 2 h + c of d is D(g + 8 h, 2 t + c)."""
    left, right = np.empty((16, 16), np.float32), np.empty((16, 8), np.float32)
    for half in (0, 1):
        for q in (0, 1):
            right[8 * q + 2 * T + half, G] = b[:, q, half]
            for h in (0, 1):
                left[G + 8 * h, 8 * q + 2 * T + half] = a[:, h + 2 * q, half]
    product = left @ right
    sums = [d[:, 2 * h + c] + product[G + 8 * h, 2 * T + c] for h in (0, 1) for c in (0, 1)]
    return np.array(sums).T


def collected(d: Array) -> Array:
    """Exercise 1: D (16 x 8) from the registers of 32 work-items."""
    out = np.empty((16, 8), d.dtype)
    for h in (0, 1):
        for c in (0, 1):
            out[G + 8 * h, 2 * T + c] = d[:, 2 * h + c]
    return out


def owner(unit: str, i: int, j: int) -> tuple[int, int]:
    """Exercise 2: (work-item, register) that holds D(i, j). mfma: 32 x 32 float32; wgmma: 64 rows."""
    match unit:
        case "mma":
            return i % 8 * 4 + j // 2, i // 8 * 2 + j % 2
        case "wgmma":
            return i // 16 * 32 + i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i % 16 // 8 * 2 + j % 2
        case "mfma":
            return i // 4 % 2 * 32 + j, i // 8 * 4 + i % 4
        case "wmma":
            return i % 2 * 16 + j, i // 2
        case "dpas":
            return j, i
    raise ValueError(f"unit must be mma, wgmma, mfma, wmma or dpas: {unit!r}")


def stage_bytes(bm: int, bn: int, block_bytes: int = 128) -> int:
    """Exercise 3: a block of K of each row of A's tile and each column of B's."""
    return (bm + bn) * block_bytes


def most_stages(bm: int, bn: int, local_bytes: int) -> int:
    """Exercise 3: stages that local memory holds."""
    return local_bytes // stage_bytes(bm, bn)


def operations_a_byte(rows: int, columns: int, element_bytes: int) -> float:
    """Exercise 3: operations for each byte read from local memory, if a tile of rows x columns is kept."""
    return 2 * rows * columns / ((rows + columns) * element_bytes)


def main() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((16, 48), (48, 8)))
    sums = np.zeros((32, 4), np.float32)
    for k in range(0, 48, 16):
        sums = mma(sums, fragments_of_a(a[:, k : k + 16]), fragments_of_b(b[k : k + 16]))
    print(f"1. K = 48 by three instructions: right: {np.array_equal(collected(sums), a @ b)}")
    for unit in ("mma", "wgmma", "mfma", "wmma", "dpas"):
        print("2. {}: D(3, 5) is in work-item {}, register {}".format(unit, *owner(unit, 3, 5)))
    print(f"3. a stage of 128 x 256: {stage_bytes(128, 256)} bytes; {most_stages(128, 256, 232_448)} fit")
    for rows, columns in ((64, 32), (64, 64)):
        print(
            f"3. {rows} x {columns} of float16: {operations_a_byte(rows, columns, 2):.1f} operations a byte"
        )


if __name__ == "__main__":
    main()
