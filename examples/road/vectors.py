"""Solutions of docs/road/08_vector.md: whole vectors, and aligned rows."""

from __future__ import annotations


def vectors_and_elements(n: int, lanes: int) -> tuple[int, int]:
    """Exercise 1: how many vectors of a row lie inside it, and how many elements are left."""
    return n // lanes, n % lanes


def aligned_rows(rows: int, n: int, itemsize: int = 4, alignment: int = 16) -> int:
    """Exercise 2: how many rows of an n-column matrix begin at a multiple of `alignment` bytes."""
    return sum(row * n * itemsize % alignment == 0 for row in range(rows))


def main() -> None:
    for n in (512, 513, 3):
        print("1. {} columns: {} vectors of four, {} elements left".format(n, *vectors_and_elements(n, 4)))
    for n in (512, 513, 514):
        print(f"2. {n} columns: {aligned_rows(512, n)} of 512 rows begin at a multiple of 16 bytes")
    print("3. `pyclmm road examples/road/vectors_from_global.cl`")


if __name__ == "__main__":
    main()
