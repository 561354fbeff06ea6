"""Compares pyclmm with NumPy on CPUs where memory bounds the speed: dot products, sums, small products.

    OCL_ICD_VENDORS=... python benchmarks/shapes.py [NAME ...]

Host arrays in, host array out, float32. Both take turns, without a pause; the ratio is the median of those of
neighbouring calls, as other work on the machine slows both. docs/kernels/packed.md has results.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import pyclmm
from pyclmm import linalg
from pyclmm.opencl.devices import device_info, find_device

SECONDS = 3.0  # for each product
Call = Callable[[], object]


def calls() -> dict[str, tuple[Call, Call]]:
    """The products by name: pyclmm's call, NumPy's."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return rng.random(shape, dtype=np.float32) - np.float32(0.5)

    rows, others = drawn(100_000, 8), drawn(100_000, 8)
    x, y = drawn(10**7), drawn(10**7)
    p, q = drawn(200, 200, 100), drawn(200, 200, 100)
    wide, tall = drawn(3, 10**6), drawn(10**6, 3)
    s, t = drawn(20_000, 3, 3), drawn(20_000, 3, 3)
    c, d = drawn(100_000, 1, 16), drawn(100_000, 16, 1)
    g, h = drawn(3000, 3000), drawn(3000, 3000)
    return {
        "vecdot (100000, 8)": (lambda: linalg.vecdot(rows, others), lambda: np.vecdot(rows, others)),
        "dot of 10^7": (lambda: linalg.dot(x, y), lambda: np.dot(x, y)),
        "ijk,ijk->ik (200, 200, 100)": (
            lambda: linalg.einsum("ijk,ijk->ik", p, q),
            lambda: np.einsum("ijk,ijk->ik", p, q),
        ),
        "(3, 10^6) @ (10^6, 3)": (lambda: pyclmm.matmul(wide, tall), lambda: wide @ tall),
        "20,000 of 3 x 3": (lambda: pyclmm.matmul(s, t), lambda: s @ t),
        "(n, 1, 16) @ (n, 16, 1), n = 100,000": (lambda: pyclmm.matmul(c, d), lambda: c @ d),
        "ij,ij-> (3000, 3000)": (
            lambda: linalg.einsum("ij,ij->", g, h),
            lambda: np.einsum("ij,ij->", g, h),
        ),
        "ij-> (3000, 3000)": (lambda: linalg.einsum("ij->", g), lambda: np.einsum("ij->", g)),
    }


def seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="how names of products begin; all without one"
    )
    wanted = parser.parse_args().names
    device = device_info(find_device(None))
    print(f"{device.name}, {device.platform} {device.driver_version}, NumPy {np.__version__}")
    print("| product | pyclmm, ms | NumPy, ms | times NumPy's |\n| --- | --- | --- | --- |")
    for name, both in calls().items():
        if wanted and not any(name.startswith(word) for word in wanted):
            continue
        for call in both:
            call()
        rounds: list[list[float]] = []
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(rounds) < 5:
            rounds.append([seconds(call) for call in both])
        ours, numpys = (statistics.median(column) * 1e3 for column in zip(*rounds, strict=True))
        ratio = statistics.median(mine / other for mine, other in rounds)
        print(f"| {name} | {ours:.2f} | {numpys:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
