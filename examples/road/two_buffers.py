"""Solutions of docs/road/09_double_buffer.md: a timetable, and work-groups that fit."""

from __future__ import annotations


def seconds(steps: int, load: float, multiply: float, pairs: int) -> float:
    """Exercise 1: with one pair of tiles each step waits; with two, loads and multiply-adds overlap."""
    if pairs == 1:
        return steps * (load + multiply)
    return load + (steps - 1) * max(load, multiply) + multiply


def work_groups(tile: tuple[int, int, int], pairs: int, local_bytes: int, itemsize: int = 4) -> int:
    """Exercise 2: how many work-groups' tiles local memory holds at a time."""
    bm, bn, bk = tile
    return local_bytes // (pairs * bk * (bm + bn) * itemsize)


def main() -> None:
    for multiply in (1, 9):
        one, two = (seconds(32, 1, multiply, pairs) for pairs in (1, 2))
        print(
            f"1. 32 steps, L = 1, X = {multiply}: {one} with one pair, {two} with two, {one / two:.2f} times"
        )
    for name, pairs in (("block", 1), ("double_buffer", 2)):
        print(f"2. 48 KiB hold {work_groups((64, 64, 16), pairs, 48 * 1024)} work-groups of {name}")
    print("3. `pyclmm road examples/road/two_pairs.cl`")


if __name__ == "__main__":
    main()
