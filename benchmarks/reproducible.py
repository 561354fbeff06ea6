"""Compares reproducible products with "highest" on the same device, in one run.

    python benchmarks/reproducible.py SEED [--device NAME] [--products 60] [--kinds highest float64]
                                      [--rounds 5] [--limit 100] [--json FILE]

Products are drawn as products.py draws them, the larger ones for a GPU only. Both sides are plans for the
same Arrays. A time is that of a burst of calls divided by their number: by the device's own clock on NVIDIA's
devices (burst.py), by the host's around calls and a wait for the queue elsewhere. Rounds are interleaved, and
times are medians. Each reproducible result is compared with the host's bits (pyclmm.reference.chain) in a few
rows and columns.

Kind "highest" is float32. float16 and bfloat16 have rows of their own: on matrix units "highest" adds in an
order and with a rounding that nothing else can repeat, so the ratio there is what reproducible costs.

On an NVIDIA H200: python benchmarks/reproducible.py 21 --device nvidia --json benchmarks/results/FILE
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from burst import MOST_LAUNCHES, Burst
from products import FOR_CPU, FOR_GPU, Product, drawn
from ratios import by_kind

import pyclmm
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.queues import new_queue

KINDS = ("highest", "float64", "complex64", "float16", "bfloat16")
PAIR = (False, True)  # reproducible or not
_BURST = {True: 0.02, False: 0.5e-3}  # seconds of calls in a burst, on a CPU and on a GPU
_MOST_CALLS = 40
_CHECKED = 3  # rows and columns whose bits are compared

Clock = Callable[[Callable[[], object], int, int], float]


def clock_of(queue: cl.CommandQueue) -> Clock:
    """A function of (call, number of calls, launches of one): seconds of a call."""
    if device_info(queue.device).vendor == "nvidia":
        return Burst(queue).seconds

    def by_host(call: Callable[[], object], calls: int, launches: int) -> float:
        queue.finish()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        queue.finish()
        return (time.perf_counter() - start) / calls

    return by_host


class Pair:
    """One product on the device, planned both ways."""

    def __init__(self, queue: cl.CommandQueue, clock: Clock, product: Product, numbers: np.ndarray) -> None:
        self.queue, self.clock, self.product = queue, clock, product
        self.host = [self._operand(numbers, s, 777 * i) for i, s in enumerate(product.stored)]
        self.operands = [cla.to_device(queue, x) for x in self.host]
        *stack, m, n, _ = product.shape
        self.out = cla.zeros(queue, (*stack, m, n), product.dtype)
        self.plans = {way: self._plan(way) for way in PAIR}

    def _operand(self, numbers: np.ndarray, shape: tuple[int, ...], start: int) -> np.ndarray:
        reals = 2 if self.product.dtype.kind == "c" else 1
        flat = np.resize(numbers[start:], math.prod(shape) * reals)
        single = flat.view(np.complex64) if reals == 2 else flat
        return single.astype(self.product.dtype).reshape(shape)

    def _plan(self, way: bool) -> Any:
        trans_a, trans_b = self.product.layout
        plan = pyclmm.Matmul(*self.operands, out=self.out, trans_a=trans_a, trans_b=trans_b,
                             dtype=self.product.dtype, reproducible=way)  # fmt: skip
        plan.enqueue(*self.operands, out=self.out)
        self.queue.finish()
        return plan

    def seconds(self, way: bool, calls: int) -> float:
        plan = self.plans[way]
        launches = len(plan.explain().launches)
        most = max(1, min(calls, _MOST_CALLS, 4 * MOST_LAUNCHES // launches))
        return self.clock(lambda: plan.enqueue(*self.operands, out=self.out), most, launches)

    def has_the_bits(self) -> bool:
        """Whether some rows and columns of a reproducible result are the host's."""
        self.plans[True].enqueue(*self.operands, out=self.out)
        a, b = (
            np.swapaxes(x, -1, -2) if letter == "T" else x
            for x, letter in zip(self.host, self.product.layout, strict=True)
        )
        first = (0,) * (a.ndim - 2)
        m, n, _ = self.product.shape[-3:]
        rows, columns = (np.linspace(0, size - 1, _CHECKED).astype(int) for size in (m, n))
        want = pyclmm.reference.chain(a[first][rows], b[first][:, columns], dtype=self.product.dtype)
        got = self.out.get()[first][np.ix_(rows, columns)]
        return bool(np.array_equal(got.view(np.uint8), want.view(np.uint8)))


def measured(pair: Pair, rounds: int, burst: float) -> dict[str, Any]:
    """A row of the table."""
    calls = max(1, int(burst / pair.seconds(False, 1)))
    times = [[pair.seconds(way, calls) for way in PAIR] for _ in range(rounds + 1)][1:]
    highest, chained = (statistics.median(column) for column in zip(*times, strict=True))
    product = pair.product
    if not pair.has_the_bits():
        raise ArithmeticError(f"{product}: other bits than the host's")
    return {
        "kind": product.kind, "shape": product.shape, "layout": product.layout,
        "kernels": [pair.plans[way].kernel for way in PAIR],
        "configs": [str(pair.plans[way].config) for way in PAIR],
        "estimates": [pair.plans[way].explain().seconds for way in PAIR],
        "highest_seconds": highest, "reproducible_seconds": chained, "ratio": highest / chained,
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    shape, kernels = "x".join(map(str, row["shape"])), " -> ".join(row["kernels"])
    return f"{row['kind']:9} {shape:>21} {row['layout']} {row['ratio']:5.2f}  {kernels}: {row['configs'][1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--device")
    parser.add_argument("--products", type=int, default=60)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--limit", type=float, default=100, help="seconds; the remaining products are left out"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    queue = new_queue(find_device(options.device))
    info = device_info(queue.device)
    about = {"device": info.name, "platform": info.platform_version, "driver": info.driver_version,
             "pyclmm": pyclmm.__version__, "seed": options.seed,
             "date": datetime.date.today().isoformat()}  # fmt: skip
    print(about, flush=True)
    clock, started = clock_of(queue), time.perf_counter()
    numbers = np.random.default_rng(0).standard_normal(2**22 - 6, dtype=np.float32)
    rows: list[dict[str, Any]] = []
    for product in drawn(
        options.seed, options.products, options.kinds, largest=FOR_CPU if info.is_cpu else FOR_GPU
    ):
        if time.perf_counter() - started > options.limit:
            print("out of time before", product)
            break
        rows.append(measured(Pair(queue, clock, product, numbers), options.rounds, _BURST[info.is_cpu]))
        print(line(rows[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    print(by_kind((row["kind"], row["ratio"]) for row in rows))


if __name__ == "__main__":
    main()
