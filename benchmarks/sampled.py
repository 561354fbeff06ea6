"""Compares products drawn at random with cuBLAS (through PyTorch), in one run.

    python benchmarks/sampled.py SEED [--products 150] [--kinds float16 high] [--rounds 5]
                                 [--limit 400] [--json FILE]

A time is that of a burst of calls, which follow each other on the device without a pause, divided by their
number (burst.py). ``seconds`` is of bound calls, whose launches have no events, as the nodes of cuBLAS's CUDA
graph have none; ``called_seconds`` is of calls on Arrays, as a user makes them. Rounds are
interleaved, results are medians, data are random, and each result is compared with a float64 product on the
device. The peer of float32 is cuBLAS's float32 for "highest" and "high", its TF32 for "medium".

Use seeds 1 to 10 for development. A published table comes from a seed that was not used before.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import torch
from burst import Burst
from cuda_graph import Graph
from products import KINDS, NUMBERS, Product, Random, drawn
from ratios import by_kind

import pyclmm
from pyclmm.opencl.devices import find_device
from pyclmm.opencl.queues import new_queue
from pyclmm.selection.select import KernelChoice

BURST = 0.25e-3  # seconds of calls in a burst
_LAUNCHES = 40  # most in a burst
TOLERANCE = {
    "float16": 1e-3,
    "bfloat16": 5e-3,
    "highest": 4e-6,
    "medium": 1e-3,
    "high": 4e-6,
    "float64": 1e-14,
}
_CHECKED = 4100  # rows and columns of the largest result that is compared in whole; of others, so many are


def to_torch(x: np.ndarray[Any, Any]) -> torch.Tensor:
    if x.dtype.itemsize == 2 and x.dtype != np.float16:
        return torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(x).cuda()


class OnDevice:
    """Operands of the same random numbers in OpenCL's and in PyTorch's memory, copied on the device."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue, self._random = queue, Random()
        self._of: dict[np.dtype[Any], tuple[Any, torch.Tensor]] = {}

    def operand(self, shape: tuple[int, ...], dtype: np.dtype[Any], start: int) -> tuple[Any, torch.Tensor]:
        """Numbers from number *start* on, again and again."""
        if dtype not in self._of:
            host = self._random.operand((NUMBERS,), dtype, 0)
            self._of[dtype] = cla.to_device(self._queue, host), to_torch(host)
        numbers, tensor = self._of[dtype]
        made, whole, each = cla.empty(self._queue, shape, dtype), math.prod(shape), NUMBERS - start
        for at in range(0, whole, each):
            size, unit = min(each, whole - at) * dtype.itemsize, dtype.itemsize
            cl.enqueue_copy(self._queue, made.data, numbers.data,
                            byte_count=size, src_offset=start * unit, dst_offset=at * unit)  # fmt: skip
        repeated = tensor[start:].repeat(math.ceil(whole / each))
        return made, repeated[:whole].reshape(shape)


class SampledProduct:
    """One product on the device, in pyclmm and in PyTorch, with the same numbers."""

    def __init__(self, burst: Burst, product: Product, random: OnDevice) -> None:
        self.burst, self.product = burst, product
        both = [random.operand(s, product.dtype, 777 * i) for i, s in enumerate(product.stored)]
        self.operands = [array for array, _ in both]
        *stack, m, n, _ = product.shape
        self.out = cla.zeros(burst.queue, (*stack, m, n), product.dtype)
        self.a, self.b = (
            x.transpose(-1, -2) if trans == "T" else x
            for (_, x), trans in zip(both, product.layout, strict=True)
        )
        self.calls = max(2, int(BURST / max(product.flops / 700e12, product.nbytes / 4e12, 2e-6)))
        torch.backends.cuda.matmul.allow_tf32 = product.kind == "medium"
        self.cublas = Graph(lambda: torch.matmul(self.a, self.b), self.calls).seconds

    def plan(self, kernel: KernelChoice = "auto") -> Any:
        """A plan of the product. Its first call has been made."""
        trans_a, trans_b = self.product.layout
        plan = pyclmm.Matmul(*self.operands, out=self.out, trans_a=trans_a, trans_b=trans_b,
                             kernel=kernel, precision=self.product.precision)  # fmt: skip
        plan.enqueue(*self.operands, out=self.out)
        return plan

    def eventless(self, plan: Any, launches: int) -> float:
        """Seconds of a product with launches that have no events."""
        calls = max(1, min(self.calls, _LAUNCHES // launches))
        return self.burst.seconds(plan.bind(*self.operands, out=self.out), calls, launches)

    def called(self, plan: Any, launches: int) -> float:
        """Seconds of a product as a user calls it."""
        calls = max(1, min(self.calls, _LAUNCHES // launches))
        return self.burst.seconds(lambda: plan(*self.operands, out=self.out), calls, launches)

    def error(self) -> float:
        """The error of the last result, relative by norm, in up to _CHECKED rows and columns of a product."""
        some = (slice(0, 2), slice(0, _CHECKED), slice(0, _CHECKED))[-self.a.ndim :]
        columns = (some[0], slice(None), some[-1])[-self.a.ndim :]
        want = self.a[(*some[:-1], slice(None))].double() @ self.b[columns].double()
        got = to_torch(self.out.get())[some].double()
        return float((got - want).norm() / want.norm())


def medians(sides: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """The median of each side's time over interleaved rounds, without the first."""
    times = [[side() for side in sides] for _ in range(rounds + 1)][1:]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def measured(timed: SampledProduct, rounds: int) -> dict[str, Any]:
    """A row of the table."""
    product = timed.product
    started = time.perf_counter()
    plan = timed.plan()
    timed.burst.queue.finish()
    first = time.perf_counter() - started
    launches = len(plan.enqueue(*timed.operands, out=timed.out))
    eventless, called, peer = medians(
        (lambda: timed.eventless(plan, launches), lambda: timed.called(plan, launches), timed.cublas),
        rounds,
    )
    error = timed.error()
    if not error <= TOLERANCE[product.kind]:
        raise ArithmeticError(f"error {error}")
    return {
        "kind": product.kind, "shape": product.shape, "layout": product.layout, "kernel": plan.kernel,
        "config": str(plan.config), "estimate": plan.explain().seconds, "seconds": eventless,
        "called_seconds": called, "cublas_seconds": peer, "first_call_seconds": first, "error": error,
    }  # fmt: skip


def summary(rows: Sequence[dict[str, Any]], key: str = "seconds") -> str:
    """A line for each kind, of the ratios to cuBLAS."""
    return by_kind((row["kind"], row["cublas_seconds"] / row[key]) for row in rows)


def worst(rows: Sequence[dict[str, Any]], count: int = 5) -> str:
    """The rows with the least ratios, one to a line."""
    ordered = sorted(rows, key=lambda row: row["cublas_seconds"] / row["seconds"])
    return "\n".join(line(row) for row in ordered[:count])


def line(row: dict[str, Any]) -> str:
    shape = "x".join(map(str, row["shape"]))
    ratio = row["cublas_seconds"] / row["seconds"]
    return (
        f"{row['kind']:9} {shape:>21} {row['layout']} {row['seconds'] * 1e6:9.1f} us"
        f" {ratio:5.2f} of cuBLAS  {row['kernel']} {row['config']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--products", type=int, default=150)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--limit", type=float, default=400, help="seconds; the remaining products are left out"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    queue = new_queue(find_device("nvidia"))
    about = {"device": queue.device.name, "driver": queue.device.driver_version, "pyclmm": pyclmm.__version__,
             "torch": torch.__version__, "seed": options.seed,
             "date": datetime.date.today().isoformat()}  # fmt: skip
    print(about, flush=True)
    burst, random, started = Burst(queue), OnDevice(queue), time.perf_counter()
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    for product in drawn(options.seed, options.products, options.kinds):
        if time.perf_counter() - started > options.limit:
            print("out of time before", product)
            break
        try:
            rows.append(measured(SampledProduct(burst, product, random), options.rounds))
        except (ArithmeticError, RuntimeError) as error:  # RuntimeError: the host was too slow
            failed.append(f"{product}: {error}")
            print(failed[-1], flush=True)
            continue
        print(line(rows[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    eventless, called = summary(rows), summary(rows, "called_seconds")
    print("without events", eventless, "as called", called, "worst:", worst(rows), sep="\n")
    if failed:
        raise SystemExit("\n".join(["not in the table:", *failed]))


if __name__ == "__main__":
    main()
