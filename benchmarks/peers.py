"""A peer's time: the best of all rows of all runs that measured the same product on the same device.

A row of a run has a peer's time beside pyclmm's, but that time may be a bad one: clocks drop, other work
comes in between. So speeds are divided by the peer's best time, wherever it was measured:

    python benchmarks/peers.py

lists them, with the file that each is from. The files are those in benchmarks/results/ that this module
knows (READERS). A product is the same if four things are:

- the device
- the operation: the type of the elements, and TF32 or not
- the shape
- the layout. Both sides get operands as they are stored; for a faster layout, the peer would have to
  transpose an operand in memory first. ``fastest`` gives the best time of all layouts, to be shown beside.
  int8 has one layout: the only one that cuBLAS takes, and it gets it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
Content = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Product:
    """What a peer computed. *shape*: M, N, K; the number of products before them, where it is not 1."""

    operation: str
    layout: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, operation: str, layout: str, shape: Iterable[int]) -> Product:
        *stack, m, n, k = shape
        return cls(
            operation, "any" if operation == "int8" else layout, (*(z for z in stack if z > 1), m, n, k)
        )

    def __str__(self) -> str:
        *stack, m, n, k = self.shape
        return f"{self.operation} {self.layout} " + "".join(f"{z} of " for z in stack) + f"{m} x {n} x {k}"

    @property
    def flops(self) -> float:
        """Operations: 2 M N K for each product of a stack, four times that for complex numbers."""
        count = 8.0 if self.operation.startswith("complex") else 2.0
        for length in self.shape:
            count *= length
        return count


Timed = tuple[Product, float]  # seconds


def of_units_row(row: Row) -> Product:
    """What cuBLAS computed beside a row of matrix_units.py."""
    operation = row["peer"]
    if row["dtype"] == "complex64":
        operation = "complex64" + " TF32" * (operation == "tf32")
    return Product.of({"tf32": "TF32"}.get(operation, operation), row["layout"], row["shape"])


def of_gpu_row(row: Row, dtype: str) -> Product:
    """What cuBLAS computed beside a row of gpu.py."""
    return Product.of(dtype, row["layout"], row["shape"])


def _units(content: Content) -> Iterator[Timed]:
    for row in content["rows"]:
        yield of_units_row(row), row["cublas_seconds"]


def _gpu(content: Content) -> Iterator[Timed]:
    for row in content["rows"]:
        yield of_gpu_row(row, content["dtype"]), row["seconds"]["cublas"]


def _ladder(content: Content) -> Iterator[Timed]:
    for name, seconds in content["seconds"].items():
        peer, _, operation = name.partition(" ")
        if peer == "cuBLAS":
            yield Product.of(operation, "NN", [content["n"]] * 3), seconds


def _cublaslt(content: Content) -> Iterator[Timed]:
    for row in content["rows"]:
        product = Product.of(row["operation"], row["layout"], row["shape"])
        yield product, min(row["seconds"], row["torch_seconds"])


def _peers_alone(content: Content) -> Iterator[Timed]:
    for row in content["rows"]:
        yield Product.of(row["operation"], row["layout"], row["shape"]), row["seconds"]


READERS: dict[str, Callable[[Content], Iterator[Timed]]] = {
    "*-matrix-units.json": _units,
    "*-float32.json": _gpu,
    "*-float64-register.json": _gpu,
    "*-ladder.json": _ladder,
    "*-cublaslt.json": _cublaslt,
    "*-peers.json": _peers_alone,
}


@dataclass(frozen=True)
class Best:
    """The best time of a product in seconds, and where it was measured."""

    seconds: float
    source: str


class Peers:
    """The best times by device and product."""

    def __init__(self) -> None:
        self.best: dict[tuple[str, Product], Best] = {}

    def add(self, device: str, timed: Iterable[Timed], source: str) -> None:
        for product, seconds in timed:
            known = self.best.get((device, product))
            if known is None or seconds < known.seconds:
                self.best[device, product] = Best(seconds, source)

    def seconds(self, device: str, product: Product) -> float:
        """The best time of *product* on *device*. Raises KeyError if nobody measured it."""
        return self.best[device, product].seconds

    def fastest(self, device: str, product: Product) -> float:
        """The best time of *product* in any layout."""
        return min(
            best.seconds
            for (where, other), best in self.best.items()
            if where == device and replace(other, layout=product.layout) == product
        )


def read(folder: Path = RESULTS) -> Peers:
    """The best times of all runs in *folder*."""
    peers = Peers()
    for pattern, reader in READERS.items():
        for file in sorted(folder.glob(pattern)):
            content = json.loads(file.read_text())
            peers.add(content["device"], reader(content), file.name)
    return peers


def of_run(content: Content, reader: str) -> Peers:
    """The best times of one run, read as files of that pattern are."""
    peers = Peers()
    peers.add(content["device"], READERS[reader](content), "this run")
    return peers


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    found = read().best
    for (device, product), best in sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        rate = product.flops / best.seconds / 1e12
        print(f"{device}  {product!s:40} {best.seconds * 1e6:10.1f} us {rate:7.1f} TFLOP/s  {best.source}")


if __name__ == "__main__":
    main()
