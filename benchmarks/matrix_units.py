"""Compares products on NVIDIA's matrix units with cuBLAS (through PyTorch), in one run.

    python benchmarks/matrix_units.py [--json FILE] [--rounds 9] [--limit 120] [--largest 8192] [--only wgmma]

Each time is that of a burst of calls, which run without a pause and without the host, divided by their
number. pyclmm's calls wait behind a kernel that spins (burst.py); cuBLAS's are a CUDA graph that waits
likewise. ``seconds`` is a call on Arrays, as a user makes it. The nodes of a graph have no events;
``silent_seconds`` is ``plan.enqueue``, for whose events nobody asks. Rounds are interleaved, results are
medians, data are random; results are compared with a float64 product on the device. PYCLMM_TRIAL=off skips
the trial of each new program in a child process.

The ratios at the end are to cuBLAS's best time over all rows with the same product (peers.py). For int8
PyTorch calls cuBLASLt without a workspace; cublaslt.py measures it with one.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import peers
import pyopencl as cl
import pyopencl.array as cla
import torch
from burst import MOST_LAUNCHES, Burst
from cuda_graph import Graph
from gpu import product

import pyclmm
from pyclmm.kernels.interface import Program
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.program import built
from pyclmm.opencl.queues import new_queue
from pyclmm.problem.literals import Precision, Trans
from pyclmm.selection.select import KernelChoice, candidates

Shape = tuple[int, ...]  # M, N, K; for a stack, the number of products before them
CUBES = tuple((n, n, n) for n in (512, 1024, 2048, 4096, 8192, 1000, 4095, 4097, 16384))
OBLONG = ((16, 4096, 4096), (4096, 16, 4096), (4096, 4096, 16), (1, 8192, 8192), (256, 256, 65536),
          (65536, 256, 256), (64, 512, 512, 512), (1024, 128, 128, 128))  # fmt: skip
OTHERS = (*((n, n, n) for n in (1536, 3072, 5120)), (512, 512, 16384), (4096, 128, 4096), (8192, 8192, 256))
MANY = CUBES + OBLONG
FEW = tuple((n, n, n) for n in (1024, 2048, 4096, 8192))
LARGE = tuple((n, n, n) for n in (1024, 2048, 3072, 4096, 8192, 16384))
BURST = 0.3e-3  # seconds of calls in a burst
TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8, "float32": torch.float32,
         "float64": torch.float64, "complex64": torch.complex64, "complex128": torch.complex128}  # fmt: skip
# dtype or precision -> the largest relative error, by norm, of a right product
TOLERANCE = {
    "float16": 1e-3,
    "bfloat16": 5e-3,
    "int8": 0,
    "medium": 1e-3,
    "high": 2e-6,
    "float64": 1e-14,
    "complex128": 1e-14,
}


@dataclass(frozen=True)
class Case:
    """A kernel, the operands' type and layout, the precision, and the peer's name."""

    kernel: KernelChoice
    dtype: str
    peer: str
    precision: Precision = "highest"
    layout: str = "NN"
    shapes: tuple[Shape, ...] = FEW

    @property
    def title(self) -> str:
        words = {"float32": self.precision, "complex64": f"c64 {self.precision}"}
        words |= {"float64": f"float64 {self.precision}", "complex128": f"c128 {self.precision}"}
        word = words.get(self.dtype, self.dtype)
        return f"{self.kernel} {word} {self.layout}"


CASES = (
    *(Case("auto", "float16", "float16", layout=layout, shapes=MANY) for layout in ("NN", "NT", "TN")),
    *(Case("auto", "bfloat16", "bfloat16", layout=layout, shapes=MANY) for layout in ("NN", "NT", "TN")),
    *(Case("auto", "float64", "float64", layout=layout, shapes=MANY) for layout in ("NN", "NT", "TN")),
    *(Case("auto", "float32", "tf32", "medium", layout, MANY) for layout in ("NN", "NT", "TN")),
    Case("wgmma", "float16", "float16", shapes=OTHERS),
    Case("mma", "float16", "float16"),
    Case("mma", "bfloat16", "bfloat16"),
    Case("split", "float32", "float32", "high"),
    Case("mma_split", "float32", "float32", "high"),
    Case("split", "complex64", "float32", "high"),
    Case("split", "complex64", "tf32", "medium"),
    Case("mma", "float32", "tf32", "medium"),
    Case("mma_double", "float64", "float64"),
    *(
        Case("auto", dtype, dtype, "high", layout, LARGE)
        for dtype in ("float64", "complex128")
        for layout in ("NN", "NT")
    ),
    Case("wgmma", "int8", "int8"),
    Case("wgmma", "int8", "int8", layout="NT"),
    Case("mma", "int8", "int8", layout="NT"),
)


def numbers(shape: Shape, dtype: str, seed: int) -> np.ndarray[Any, Any]:
    """Random operands; large ones repeat a block, which does not change the time of a product."""
    rng = np.random.default_rng(seed)
    few = min(math.prod(shape), 2**24 - 3)  # prime to the lengths of rows: no two rows are the same
    drawn = np.float64 if dtype in ("float64", "complex128") else np.float32  # with all of their bits
    x = rng.integers(-128, 128, few) if dtype == "int8" else rng.standard_normal(few, dtype=drawn)
    x = x + 1j * x[::-1] if dtype in ("complex64", "complex128") else x
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return np.resize(x.astype(kind), shape)


def on_gpu(x: np.ndarray[Any, Any]) -> Any:
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(x).cuda()


class Product:
    """One product in pyclmm and in PyTorch, with the same numbers."""

    def __init__(self, burst: Burst, case: Case, shape: Shape):
        *stack, m, n, k = shape
        self.burst, self.case, self.flops = burst, case, 2.0 * math.prod(shape)
        self.flops *= 4 if case.dtype in ("complex64", "complex128") else 1
        queue = burst.queue
        stored = [(k, m) if case.layout[0] == "T" else (m, k), (n, k) if case.layout[1] == "T" else (k, n)]
        host = [numbers((*stack, *s), case.dtype, seed) for seed, s in enumerate(stored)]
        self.operands = [cla.to_device(queue, x) for x in host]
        result = np.dtype(np.int32) if case.dtype == "int8" else host[0].dtype
        self.out = cla.to_device(queue, np.full((*stack, m, n), 7).astype(result))
        trans_a: Trans = "T" if case.layout[0] == "T" else "N"
        trans_b: Trans = "T" if case.layout[1] == "T" else "N"
        self.plan = pyclmm.Matmul(*self.operands, out=self.out, trans_a=trans_a, trans_b=trans_b,
                                  kernel=case.kernel, precision=case.precision, dtype=result)  # fmt: skip
        self.launches = len(self.call())
        self.a, self.b = (
            x.transpose(-1, -2) if trans == "T" else x
            for x, trans in zip(map(on_gpu, host), case.layout, strict=True)
        )
        moved = sum(x.nbytes for x in host) + self.out.nbytes
        self.calls = max(2, int(BURST / max(self.flops / 500e12, moved / 4e12)))
        torch.backends.cuda.matmul.allow_tf32 = case.peer == "tf32"
        # cuBLAS has one layout for int8
        multiply = torch._int_mm if case.dtype == "int8" else torch.matmul
        right = self.b.T.contiguous().T if case.dtype == "int8" else self.b
        self.cublas = Graph(lambda: multiply(self.a, right), min(60, self.calls)).seconds

    def call(self) -> object:
        return self.plan(*self.operands, out=self.out)

    def eventless_call(self) -> None:
        self.plan.enqueue(*self.operands, out=self.out)

    def error(self) -> float:
        wide = torch.complex128 if self.case.dtype in ("complex64", "complex128") else torch.float64
        want = self.a.to(wide) @ self.b.to(wide)
        return float((on_gpu(self.out.get()).to(wide) - want).norm() / want.norm())

    def pyclmm(self) -> float:
        calls = max(1, min(self.calls, MOST_LAUNCHES // self.launches))
        return self.burst.seconds(self.call, calls, self.launches)

    def eventless(self) -> float:
        calls = max(1, min(self.calls, 40 // self.launches))
        return self.burst.seconds(self.eventless_call, calls, self.launches)


def measured(product: Product, shape: Shape, rounds: int) -> dict[str, Any]:
    """A row of the table: medians of interleaved rounds without the first."""
    times = [(product.pyclmm(), product.eventless(), product.cublas()) for _ in range(rounds + 1)][1:]
    mine, without_events, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    error = product.error() if product.flops <= 2.0 * 4100**3 else None
    case = product.case
    allowed = TOLERANCE.get(case.precision if case.dtype in ("float32", "complex64") else case.dtype, 0)
    if error is not None and not error <= allowed:
        raise SystemExit(f"{case.title} {shape}: error {error}")
    print(
        f"{case.title:20} {'x'.join(map(str, shape)):>16} {mine * 1e6:9.1f} us"
        f" {product.flops / mine * 1e-12:7.1f} TFLOP/s  (eventless {without_events * 1e6:9.1f} us,"
        f" cuBLAS {case.peer} {theirs * 1e6:9.1f} us)  {product.plan.kernel} {product.plan.config}",
        flush=True,
    )
    about = {name: value for name, value in asdict(case).items() if name != "shapes"}
    about |= {
        "asked_for": case.kernel,
        "kernel": product.plan.kernel,
        "shape": shape,
        "config": str(product.plan.config),
    }
    return {
        **about,
        "seconds": mine,
        "silent_seconds": without_events,
        "cublas_seconds": theirs,
        "error": error,
    }


def compared(about: dict[str, Any], rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], float, float]]:
    """Rows with their speed over cuBLAS's best in this run: with an event for each launch, and without."""
    best = peers.of_run({**about, "rows": rows}, "*-matrix-units.json")
    found = []
    for row in rows:
        theirs = best.seconds(about["device"], peers.of_units_row(row))
        found.append((row, theirs / row["seconds"], theirs / row["silent_seconds"]))
    return found


def summary(found: list[tuple[dict[str, Any], float, float]]) -> str:
    """A line for each row; then geometric mean and least over the shapes in MANY, for each element type."""
    lines = [
        f"{row['kernel']:16} {row['layout']}  {peers.of_units_row(row)!s:40} {with_events:6.3f}"
        f" ({eventless:.3f} eventless) of cuBLAS"
        for row, with_events, eventless in found
    ]
    for peer in ("float16", "bfloat16", "float64", "tf32"):
        own = [
            ratios
            for row, *ratios in found
            if row["peer"] == peer and row["asked_for"] == "auto" and row["precision"] != "high"
        ]
        for name, ratios in zip(("as called", "eventless"), zip(*own, strict=True), strict=False):
            mean = statistics.geometric_mean(ratios)
            lines.append(f"{peer} {name}: mean {mean:.3f}, least {min(ratios):.3f}, of {len(ratios)}")
    return "\n".join(lines)


def compile_all(queue: cl.CommandQueue, cases: list[Case], largest: int) -> None:
    """Compile most products' programs in threads, because the driver takes seconds for each."""
    info = device_info(queue.device)
    programs: dict[Program, None] = {}
    for case in (
        c for c in cases if c.dtype in ("float16", "bfloat16", "float64") and c.precision == "highest"
    ):
        dtype = np.dtype(ml_dtypes.bfloat16 if case.dtype == "bfloat16" else case.dtype)
        for shape in (s for s in case.shapes if max(s) <= largest or len(set(s)) > 1):
            problem = product((1, *shape)[-4:], case.layout, dtype)
            choice = next(candidates(problem, info, case.kernel))
            launches = choice.kernel.launches(problem, choice.config, info).launches
            programs |= {launch.program: None for launch in launches}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda program: built(queue.context, program), programs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--limit", type=float, default=120, help="seconds; the remaining cases are left out")
    parser.add_argument("--largest", type=int, default=16384)
    parser.add_argument("--only", nargs="+", default=[""], help="only cases whose titles start so")
    options = parser.parse_args()
    queue = new_queue(find_device("nvidia"))
    about = {"device": queue.device.name, "driver": queue.device.driver_version, "pyclmm": pyclmm.__version__}
    about["date"] = datetime.date.today().isoformat()
    print(about, flush=True)
    burst = Burst(queue)
    started, rows = time.perf_counter(), []
    cases = [c for c in CASES if c.title.startswith(tuple(options.only))]
    compile_all(queue, cases, options.largest)
    for case in cases:
        for shape in (s for s in case.shapes if len(set(s)) > 1 or s[0] <= options.largest):
            if time.perf_counter() - started > options.limit:
                print("out of time before", case.title, shape)
                break
            rounds = options.rounds if max(shape) < 8192 else max(3, options.rounds // 3)
            rows.append(measured(Product(burst, case, shape), shape, rounds))
            if options.json:
                options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    print(summary(compared(about, rows)))


if __name__ == "__main__":
    main()
