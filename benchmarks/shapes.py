"""Compares pyclmm with NumPy on CPUs where memory bounds the speed: dot products, sums, small products.

    OCL_ICD_VENDORS=... python benchmarks/shapes.py [NAME ...] [--drawn SEED] [--count 60] [--views] [--cpu]

Host arrays in, host array out, float32. Both take turns, with a pause before each; the ratio is the median of
those of neighbouring calls, as other work on the machine slows both. With --drawn it is products of the same
kinds with drawn sizes, for which NumPy needs 100 us or more; with --views they have drawn float types too,
and are views: parts of wider arrays, with gaps, backwards, transposed. --cpu is for a machine with much other
work: CPU time of the process, and of pyclmm's the caller's part whole and the rest divided among the cores.
docs/kernels/packed.md has results.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

import pyclmm
from pyclmm import linalg
from pyclmm.opencl.devices import device_info, find_device

CORES = len(os.sched_getaffinity(0))
SECONDS = 1.0  # for each product
PAUSE = 0.005  # seconds before each side
LEAST = 100e-6  # of NumPy's time, for a drawn product
MOST = 1.3  # times NumPy's time: what no product should take
FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
VIEWS = {
    "whole": 1,
    "gaps": 2,
    "backwards": -1,
    "in part": 0,
    "transposed": 0,
}  # by a step along the last axis
Call = Callable[[], object]
Both = tuple[Call, Call]  # pyclmm's call, NumPy's


class Products:
    """Products by kind, of random numbers."""

    def __init__(self, seed: int, views: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.views = views
        self.dtype = np.dtype(np.float32)

    def array(self, *shape: int) -> np.ndarray:
        if not self.views:
            return self.numbers(shape)
        way = self.rng.choice(list(VIEWS))
        self.ways.append(str(way))
        *outer, last = shape
        if way == "transposed":
            return np.moveaxis(self.numbers((last, *outer)), 0, -1)
        if way == "in part":
            return self.numbers((*outer, last + 5))[..., 3:-2]
        step = VIEWS[way]
        return self.numbers((*outer, last * abs(step)))[..., ::step]

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        return (self.rng.random(shape, dtype=np.float32) - np.float32(0.5)).astype(self.dtype)

    def named(self, make: Callable[..., Both], *given: object) -> tuple[str, Both]:
        self.ways: list[str] = []
        if self.views:
            self.dtype = np.dtype(self.rng.choice(FLOATS))
        both = make(*given)
        views = [self.dtype.name, *self.ways] if self.views else []
        return f"{' '.join([make.__name__, *views])} {', '.join(map(str, given))}", both

    def vecdot(self, rows: int, length: int) -> Both:
        x, y = self.array(rows, length), self.array(rows, length)
        return lambda: linalg.vecdot(x, y), lambda: np.vecdot(x, y)

    def dot(self, length: int) -> Both:
        x, y = self.array(length), self.array(length)
        return lambda: linalg.dot(x, y), lambda: np.dot(x, y)

    def einsum(self, subscripts: str, *shape: int) -> Both:
        given = [self.array(*shape) for _ in subscripts.partition("->")[0].split(",")]
        return lambda: linalg.einsum(subscripts, *given), lambda: np.einsum(subscripts, *given)

    def matmul(self, stack: tuple[int, ...], m: int, n: int, k: int) -> Both:
        x, y = self.array(*stack, m, k), self.array(*stack, k, n)
        return lambda: pyclmm.matmul(x, y), lambda: x @ y

    def length(self, least: int, most: int) -> int:
        """A length, log-uniform."""
        return int(math.exp(self.rng.uniform(math.log(least), math.log(most + 1))))


def fixed() -> Iterator[tuple[str, Both]]:
    """Those that a user has met."""
    of = Products(0)
    yield "vecdot (100000, 8)", of.vecdot(100_000, 8)
    yield "dot of 10^7", of.dot(10**7)
    yield "ijk,ijk->ik (200, 200, 100)", of.einsum("ijk,ijk->ik", 200, 200, 100)
    yield "(3, 10^6) @ (10^6, 3)", of.matmul((), 3, 3, 10**6)
    yield "20,000 of 3 x 3", of.matmul((20_000,), 3, 3, 3)
    yield "(n, 1, 16) @ (n, 16, 1), n = 100,000", of.matmul((100_000,), 1, 1, 16)
    yield "ij,ij-> (3000, 3000)", of.einsum("ij,ij->", 3000, 3000)
    yield "ij-> (3000, 3000)", of.einsum("ij->", 3000, 3000)


def drawn(seed: int, count: int, views: bool) -> Iterator[tuple[str, Both]]:
    """The kinds take turns; the sizes are drawn again until NumPy needs LEAST."""
    of = Products(seed, views)
    kinds: tuple[Callable[[], tuple[str, Both]], ...] = (
        lambda: of.named(of.vecdot, of.length(1000, 1_000_000), of.length(2, 64)),
        lambda: of.named(of.dot, of.length(100_000, 20_000_000)),
        lambda: of.named(of.einsum, "ijk,ijk->ik", *(of.length(10, 400) for _ in range(3))),
        lambda: of.named(of.matmul, (), of.length(1, 8), of.length(1, 8), of.length(30_000, 2_000_000)),
        lambda: of.named(of.matmul, (of.length(1000, 100_000),), *(of.length(2, 8) for _ in range(3))),
        lambda: of.named(of.matmul, (of.length(1000, 300_000),), 1, 1, of.length(2, 64)),
        lambda: of.named(of.einsum, "ij,ij->", of.length(30, 5000), of.length(30, 5000)),
        lambda: of.named(of.einsum, "ij->", of.length(30, 5000), of.length(30, 5000)),
    )
    for kind in itertools.islice(itertools.cycle(kinds), count):
        name, both = kind()
        while min(seconds(both[1]) for _ in range(3)) < LEAST:
            name, both = kind()
        yield name, both


def seconds(call: Call, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of a call, after a pause and another one that wakes the processor and its threads."""
    time.sleep(PAUSE)
    call()
    start = clock()
    call()
    return clock() - start


def of_cores() -> float:
    """A clock: the CPU time of this thread, and of the others that on each core."""
    own = time.thread_time()
    return own + (time.process_time() - own) / CORES


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="how names of products begin; all without one"
    )
    parser.add_argument("--drawn", type=int, metavar="SEED", help="products with drawn sizes")
    parser.add_argument("--count", type=int, default=60, help="of these")
    parser.add_argument("--views", action="store_true", help="of any float type, and of views")
    parser.add_argument("--cpu", action="store_true", help="CPU time")
    options = parser.parse_args()
    device = device_info(find_device(None))
    print(f"{device.name}, {device.platform} {device.driver_version}, NumPy {np.__version__}")
    print("| product | pyclmm, ms | NumPy, ms | times NumPy's |\n| --- | --- | --- | --- |")
    ratios = []
    clock = of_cores if options.cpu else time.perf_counter
    products = fixed() if options.drawn is None else drawn(options.drawn, options.count, options.views)
    for name, both in products:
        if options.names and not any(name.startswith(word) for word in options.names):
            continue
        for call in both:
            call()
        rounds: list[list[float]] = []
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(rounds) < 5:
            rounds.append([seconds(call, clock) for call in both])
        ours, numpys = (statistics.median(column) * 1e3 for column in zip(*rounds, strict=True))
        ratio = statistics.median(mine / other for mine, other in rounds)
        ratios.append(ratio)
        print(f"| {name} | {ours:.3g} | {numpys:.3g} | {ratio:.2f} |", flush=True)
    mean, most = statistics.geometric_mean(ratios), max(ratios)
    over = sum(ratio > MOST for ratio in ratios)
    print(f"{len(ratios)} products: geometric mean {mean:.2f}, most {most:.2f}, {over} over {MOST}")


if __name__ == "__main__":
    main()
