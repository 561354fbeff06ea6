"""Bytes that each of P devices moves for a product of N x N matrices, and the N from which a link is fast
enough.

    python benchmarks/cluster_model.py

Prints the tables of docs/dask.md. A model, not a measurement: every device at once, links that disturb one
another in nothing, transfers beside arithmetic. Sizes are those of float32.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

RATE = 53e12  # operations a second of one H200 in float32, measured in products that fit it
ITEM = 4  # bytes of a float32
MEMORY = 139 * 2**30 // ITEM  # elements that an H200 holds
TASKS = 4  # output chunks for each device, as pyclmm.dask cuts them
DEVICES = (2, 4, 16, 64, 256, 1000)
SIZE = 131072  # N of the table of bytes


@dataclass(frozen=True)
class Link:
    """Bytes a second into and out of one device."""

    name: str
    rate: float


LINKS = (
    Link("host link, 55 GB/s (measured)", 55e9),
    Link("InfiniBand, 400 Gbit/s (nominal)", 50e9),
    Link("Ethernet, 100 Gbit/s (nominal)", 12.5e9),
    Link("Ethernet, 25 Gbit/s (nominal)", 3.125e9),
)
Elements = Callable[[float, int], float]


def grid(devices: int) -> tuple[int, int]:
    """The block rows and block columns whose product is *devices*, as near to a square as there are."""
    rows = next(p for p in range(math.isqrt(devices), 0, -1) if devices % p == 0)
    return rows, devices // rows


def two_d(n: float, devices: int, tasks: int = TASKS) -> float:
    """Elements that each device moves if each output block gets its block row of A and block column of B.

    Each of *tasks* output blocks gets its own; there are more where half of the memory holds no such block.
    """
    own = n * n / devices
    blocks = max(tasks, math.ceil(own / (MEMORY / 2)))
    rows, columns = grid(devices)
    return n * n * (1 / rows + 1 / columns) * math.sqrt(blocks) + own


def replicated(n: float, devices: int) -> float:
    """COSMA's lower bound of the elements that a device moves (Kwasniewski et al., SC'19), n x n x n."""
    own = n**3 / devices
    return min(2 * own / math.sqrt(MEMORY) + MEMORY, 3 * own ** (2 / 3))


def fast_enough(elements: Elements, devices: int, link: Link) -> float:
    """The least N at which the arithmetic takes as long as the transfers."""
    low, high = 1.0, 1e9
    for _ in range(100):
        n = math.sqrt(low * high)
        transfers = elements(n, devices) * ITEM / link.rate
        arithmetic = 2 * n**3 / devices / RATE
        low, high = (low, n) if arithmetic >= transfers else (n, high)
    return high


def bytes_table() -> str:
    """Gigabytes that each device moves at N = SIZE."""
    lines = ["| devices | grid | one block a device | four, as built | 2.5-D bound |", "| --- " * 5 + "|"]
    for devices in DEVICES:
        rows, columns = grid(devices)
        found = (two_d(SIZE, devices, 1), two_d(SIZE, devices), replicated(SIZE, devices))
        cells = " | ".join(f"{elements * ITEM / 1e9:.1f}" for elements in found)
        lines.append(f"| {devices} | {rows} x {columns} | {cells} |")
    return "\n".join(lines)


def sizes_table() -> str:
    """For each link the N from which arithmetic decides, in thousands: as built / 2.5-D bound."""
    heads = " | ".join(f"P = {devices}" for devices in DEVICES)
    lines = [f"| link of each device | {heads} |", "| --- " * (len(DEVICES) + 1) + "|"]
    for link in LINKS:
        pairs = [[fast_enough(scheme, p, link) for scheme in (two_d, replicated)] for p in DEVICES]
        cells = " | ".join(f"{a / 1e3:.0f} / {b / 1e3:.0f}" for a, b in pairs)
        lines.append(f"| {link.name} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print(bytes_table(), sizes_table(), sep="\n\n")
