"""Solutions of docs/road/10_register.md: what a register tile costs, and where it lies."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

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


def main() -> None:
    for sides in ((4, 8, 16), range(4, 17, 4)):
        tile = best_tile(220, sides)
        print("1. sides of {}: {} x {}, ".format(list(sides), *tile), end="")
        print("{:g} cycles to multiply, {:g} to read; {} registers".format(*cycles(*tile), registers(*tile)))
    for place in (0, 1, 7):
        print(f"2. work-item {place}: columns {columns(place, 16, 8)}")
    apart = passes(columns(place, 16, 8)[0] for place in range(8))
    print(f"2. a bank is asked {apart} times; in blocks of 16, {passes(range(0, 128, 16))} times")
    print("3. `pyclmm road examples/road/block_from_global.cl`")


if __name__ == "__main__":
    main()
