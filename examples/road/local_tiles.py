"""Solutions of docs/road/05_tiled.md: loads counted, the widest tile, and banks."""

from __future__ import annotations

from math import ceil

import numpy as np

BANKS = 32  # of local memory, 4 bytes wide


def counted_loads(m: int, n: int, k: int, tw: int) -> int:
    """Exercise 1: elements of A and B that `tiled` loads, counted one by one."""
    count = 0
    for i0 in range(0, m, tw):
        for j0 in range(0, n, tw):
            for t in range(0, k, tw):
                count += sum(i0 + y < m and t + x < k for y in range(tw) for x in range(tw))
                count += sum(t + y < k and j0 + x < n for y in range(tw) for x in range(tw))
    return count


def loads(m: int, n: int, k: int, tw: int) -> int:
    """Exercise 1: the same as a formula."""
    return m * k * ceil(n / tw) + k * n * ceil(m / tw)


def widest_tile(local_bytes: int, work_items: int) -> int:
    """Exercise 1: the largest TW for float32: two tiles with a column of padding, TW x TW work-items."""
    tw = 1
    while 2 * (tw + 1) * (tw + 2) * 4 <= local_bytes and (tw + 1) ** 2 <= work_items:
        tw += 1
    return tw


def passes(row_length: int, work_items: int = 32) -> int:
    """Exercise 2: how often the busiest bank is asked if work-item x reads element (x, 0) of a tile."""
    return int(np.bincount([x * row_length % BANKS for x in range(work_items)]).max())


def main() -> None:
    for side in (64, 100):
        print(f"1. {side} cubed, TW = 16: {counted_loads(side, side, side, 16)} loads counted, ", end="")
        print(f"{loads(side, side, side, 16)} by the formula")
    for local_bytes, items in ((48 * 1024, 1024), (8 * 1024, 1024), (48 * 1024, 256)):
        print(f"1. {local_bytes} bytes, {items} work-items: TW = {widest_tile(local_bytes, items)}")
    for length in (32, 33, 16, 17):
        print(f"2. a row of {length} elements: the busiest bank is asked {passes(length)} times")
    print("3. `pyclmm road examples/road/long_tiles.cl`")


if __name__ == "__main__":
    main()
