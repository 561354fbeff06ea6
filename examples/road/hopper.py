"""Solutions of docs/road/15_hopper.md: the order of a tile, descriptors, tiles that the cache can feed."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
LINE, CHUNK, ATOM = 128, 16, 1024  # bytes


# 1. where an element lies
def place(line: int, k: int, swizzled: bool = True) -> int:
    """The byte of a tile at which element k of a line lies; elements have 2 bytes, and there are 64 of K."""
    chunk = k // 8
    if swizzled:
        chunk ^= line % 8
    return line * LINE + chunk * CHUNK + k % 8 * 2


def ways(places: list[int]) -> int:
    """How many of these reads of 16 bytes need the same bank, at most: 32 banks, each of 4 bytes."""
    groups = [at // CHUNK % 8 for at in places]  # a read takes four neighbouring banks
    return max(groups.count(group) for group in set(groups))


# 2. what tells the instruction where a tile lies
def descriptor(address: int) -> int:
    """The descriptor of a tile of `place` whose first byte is at `address`."""
    return (address & 0x3FFFF) >> 4 | (ATOM >> 4) << 32 | 1 << 62


def read(memory: Array, described: int, line: int, k: int) -> np.uint16:
    """Element (line, k) of a descriptor's tile, as the instruction finds it in `memory`, which has bytes."""
    at = (described & 0x3FFF) << 4
    at += line // 8 * ((described >> 32 & 0x3FFF) << 4) + line % 8 * LINE + 2 * k
    at ^= (at >> 7 & 7) << 4
    return np.uint16(int(memory[at]) | int(memory[at + 1]) << 8)


# 3. what the cache must deliver
def intensity(bm: int, bn: int, nbytes: int = 2) -> float:
    """Operations a byte that comes from the cache, of a work-group with a tile of bm x bn."""
    return 2 * bm * bn / ((bm + bn) * nbytes)


def smallest_square(operations: float, bandwidth: float, sizes: tuple[int, ...]) -> float:
    """The smallest of these squares with which `bandwidth` bytes a second allow `operations` a second."""
    return min((size for size in sizes if bandwidth * intensity(size, size) >= operations), default=inf)


def main() -> None:
    for swizzled in (True, False):
        most = ways([place(line, 0, swizzled) for line in range(8)])
        print(
            f"1. {'with' if swizzled else 'without'} the swizzle: {most} of eight chunks need the same banks"
        )
    memory = np.zeros(8192, np.uint8)
    for line in range(64):
        for k in range(64):
            value = 64 * line + k
            memory[place(line, k) : place(line, k) + 2] = value & 255, value >> 8
    for first in (0, 16, 32, 48):
        found = [read(memory, descriptor(2 * first), 5, k) for k in range(16)]
        print(f"2. from k = {first}: line 5 is right: {np.array_equal(found, 320 + first + np.arange(16))}")
    for bm, bn in ((64, 64), (128, 256)):
        print(f"3. {bm} x {bn}: {intensity(bm, bn):.0f} operations a byte")
    print(f"3. 990 TFLOP/s at 6.7 TB/s: {smallest_square(990e12, 6.7e12, tuple(range(64, 513, 64)))} squared")


if __name__ == "__main__":
    main()
