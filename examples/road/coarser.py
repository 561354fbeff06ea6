"""Solutions of docs/road/06_strip.md: reads of a strip, and shapes of a tile."""

from __future__ import annotations

from math import ceil


def local_reads(m: int, n: int, k: int, tm: int) -> int:
    """Exercise 1: elements read from local memory: for each k, tm of A and one of B for tm multiply-adds."""
    return sum(tm + 1 for _ in range(0, m, tm)) * n * k


def loads(m: int, n: int, k: int, bm: int, bn: int) -> int:
    """Exercise 2: elements loaded from global memory by tiles of bm x bn."""
    return m * k * ceil(n / bn) + k * n * ceil(m / bm)


def best_shape(m: int, n: int, k: int, elements: int) -> tuple[int, int]:
    """Exercise 2: the tile that loads least, a square. 64 x 16 loads 1.25 times as much as 32 x 32."""
    shapes = [(bm, elements // bm) for bm in range(1, elements + 1) if elements % bm == 0]
    return min(shapes, key=lambda shape: loads(m, n, k, *shape))


def main() -> None:
    for tm in (1, 2, 4, 8):
        print(f"1. strips of {tm}: {local_reads(512, 512, 512, tm) / 512**3} reads a multiply-add")
    least, asked = best_shape(512, 512, 512, 1024), loads(512, 512, 512, 64, 16)
    ratio = asked / loads(512, 512, 512, *least)
    print(f"2. {least[0]} x {least[1]} loads least; 64 x 16 loads {ratio} times as much")
    print("3. `pyclmm road examples/road/strip_from_global.cl`")


if __name__ == "__main__":
    main()
