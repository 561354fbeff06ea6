"""What the textbook kernels must move for what they compute, and what that asks of a device.

Counts are exact for the loops of cl/textbook/naive.cl and cl/textbook/tiled.cl, before any cache: the
elements that work-items load from global memory. docs/kernels.md has the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyclmm.errors import ArgumentError


@dataclass(frozen=True)
class Traffic:
    """Elements read of A and of B and written to out, in global memory, and operations."""

    a: int
    b: int
    out: int
    operations: int

    def nbytes(self, itemsize: int) -> int:
        """Bytes moved where every element has *itemsize* bytes."""
        return (self.a + self.b + self.out) * itemsize

    def intensity(self, itemsize: int) -> float:
        """Operations a byte moved; 0 where nothing is moved."""
        moved = self.nbytes(itemsize)
        return self.operations / moved if moved else 0.0


def naive(m: int, n: int, k: int) -> Traffic:
    """Traffic of `naive`: each element of A is read N times, each of B M times."""
    return _traffic(m, n, k, n, m)


def tiled(m: int, n: int, k: int, tw: int) -> Traffic:
    """Traffic of `tiled` with tiles of *tw* x *tw*: A is read ceil(N/TW) times, B ceil(M/TW) times.

    Raises ArgumentError for a tile width under 1 or a negative size.
    """
    if tw < 1:
        raise ArgumentError(f"tw is {tw}; a tile is at least 1 wide")
    return _traffic(m, n, k, -(-n // tw), -(-m // tw))


def least(m: int, n: int, k: int) -> Traffic:
    """The least that any kernel moves: each element of A and B read once."""
    return _traffic(m, n, k, 1, 1)


def bandwidth_needed(rate: float, intensity: float) -> float:
    """The bandwidth, in bytes/s, below which memory and not arithmetic decides.

    *rate* is in operations/s, *intensity* in operations a byte. Raises ArgumentError for an
    intensity that is not positive.
    """
    if not intensity > 0:
        raise ArgumentError(f"intensity is {intensity}; it must be over 0 operations a byte")
    return rate / intensity


def attainable(rate: float, bandwidth: float, intensity: float) -> float:
    """The roofline, in operations/s: the smaller of *rate* and *bandwidth* (bytes/s) x *intensity*."""
    return min(rate, bandwidth * intensity)


def _traffic(m: int, n: int, k: int, a_reads: int, b_reads: int) -> Traffic:
    for name, size in (("M", m), ("N", n), ("K", k)):
        if size < 0:
            raise ArgumentError(f"{name} is {size}; sizes are 0 or more")
    return Traffic(m * k * a_reads, k * n * b_reads, m * n, 2 * m * n * k)
