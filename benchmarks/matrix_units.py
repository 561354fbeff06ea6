"""Products on NVIDIA's matrix units beside cuBLAS (through PyTorch), in one run.

    python benchmarks/matrix_units.py [--json FILE] [--rounds 9] [--limit 120] [--largest 8192]
        [--kernels split ..]

pyclmm's time is by profiling events, from the start of a product's first launch to the end of its last, all
launches enqueued before the first begins. cuBLAS's is a replay of a CUDA graph of as many calls as fill
0.4 ms, a call's share of it, so that its launches overlap: the harder peer. Interleaved rounds, medians,
random data; every result is compared with a float64 product on the device.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import torch

import pyclmm
from pyclmm.queues import find_device, new_queue

CUBES = (1024, 1536, 2048, 3072, 4096, 4100, 5120, 8192, 16384)
OBLONG = ((512, 512, 16384), (4096, 128, 4096), (8192, 8192, 256))
FEW = (1024, 2048, 4096, 8192)
BURST = 0.4e-3  # seconds of cuBLAS's calls between two CUDA events
TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8, "float32": torch.float32,
         "float64": torch.float64, "complex64": torch.complex64}  # fmt: skip
# dtype -> the error, relative by norm, that a right product stays under
TOLERANCE = {"float16": 1e-3, "bfloat16": 5e-3, "int8": 0, "medium": 1e-3, "high": 2e-6, "float64": 1e-14}


@dataclass(frozen=True)
class Case:
    """A kernel on operands of one type: its precision, its layout, the peer's name."""

    kernel: str
    dtype: str
    peer: str
    precision: str = "highest"
    layout: str = "NN"
    sizes: tuple[int, ...] = FEW

    @property
    def title(self) -> str:
        word = {"float32": self.precision, "complex64": f"complex64 {self.precision}"}.get(
            self.dtype, self.dtype
        )
        return f"{self.kernel} {word} {self.layout}"


CASES = (
    Case("wgmma", "float16", "float16", sizes=CUBES),
    Case("wgmma", "bfloat16", "bfloat16"),
    Case("mma", "float16", "float16"),
    Case("mma", "bfloat16", "bfloat16"),
    Case("split", "float32", "float32", "high"),
    Case("split", "complex64", "float32", "high"),
    Case("split", "complex64", "tf32", "medium"),
    Case("wgmma", "float32", "tf32", "medium"),
    Case("wgmma", "float32", "tf32", "medium", "NT"),
    Case("mma", "float32", "tf32", "medium"),
    Case("mma_double", "float64", "float64"),
    Case("wgmma", "int8", "int8"),
    Case("wgmma", "int8", "int8", layout="NT"),
    Case("mma", "int8", "int8", layout="NT"),
)


def numbers(shape: tuple[int, int], dtype: str, seed: int) -> np.ndarray[Any, Any]:
    """Random operands; large ones repeat a block of 4096 columns, which a product does not notice."""
    rng = np.random.default_rng(seed)
    rows, columns = shape
    narrow = (rows, min(columns, 4096))
    x = rng.integers(-128, 128, narrow) if dtype == "int8" else rng.standard_normal(narrow, dtype=np.float32)
    x = x + 1j * rng.standard_normal(narrow, dtype=np.float32) if dtype == "complex64" else x
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return np.ascontiguousarray(np.tile(x.astype(kind), -(-columns // narrow[1]))[:, :columns])


def on_gpu(x: np.ndarray[Any, Any]) -> Any:
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(x).cuda()


class Product:
    """One product in pyclmm and in PyTorch, on the same numbers."""

    def __init__(self, queue: cl.CommandQueue, case: Case, shape: tuple[int, int, int]):
        m, n, k = shape
        self.queue, self.case, self.flops = queue, case, 2.0 * m * n * k
        self.flops *= 4 if case.dtype == "complex64" else 1
        self.launches: list[
            float
        ] = []  # of the last call, in microseconds, each to the end of the one before
        a, b = (
            numbers((m, k), case.dtype, 1),
            numbers((n, k) if case.layout == "NT" else (k, n), case.dtype, 2),
        )
        self.operands = [cla.to_device(queue, a), cla.to_device(queue, b)]
        result = np.dtype(np.int32) if case.dtype == "int8" else a.dtype
        self.out = cla.to_device(queue, np.full((m, n), 7).astype(result))
        self.plan = pyclmm.Matmul(*self.operands, out=self.out, trans_b=case.layout[1], kernel=case.kernel,
                                  precision=case.precision, dtype=result)  # fmt: skip
        self.a, self.b = on_gpu(a), on_gpu(b)
        self.b = self.b.T if case.layout == "NT" else self.b
        self.graph, self.calls = self._graph()

    def _graph(self) -> tuple[Any, int]:
        torch.backends.cuda.matmul.allow_tf32 = self.case.peer == "tf32"
        a, b = self.a, self.b
        if self.case.dtype == "int8":
            b = b.T.contiguous().T  # as cuBLAS wants it
        multiply = (lambda: torch._int_mm(a, b)) if self.case.dtype == "int8" else (lambda: torch.mm(a, b))
        for _ in range(3):
            multiply()
        torch.cuda.synchronize()
        calls = max(1, int(BURST / (self.flops / 500e12 + 5e-6)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                multiply()
        return graph, calls

    def error(self) -> float:
        wide = torch.complex128 if self.case.dtype == "complex64" else torch.float64
        want = self.a.to(wide) @ self.b.to(wide)
        return float((on_gpu(self.out.get()).to(wide) - want).norm() / want.norm())

    def pyclmm(self) -> float:
        gate = cl.UserEvent(self.queue.context)
        events = self.plan.enqueue(*self.operands, out=self.out, wait_for=[gate])
        self.queue.flush()
        gate.set_status(cl.command_execution_status.COMPLETE)
        events[-1].wait()
        times = [events[0].profile.start, *(e.profile.end for e in events)]
        self.launches = [(end - start) * 1e-3 for start, end in itertools.pairwise(times)]
        return float(events[-1].profile.end - events[0].profile.start) * 1e-9

    def cublas(self) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / self.calls


def measured(product: Product, shape: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """A row of the table: medians of interleaved rounds, the first left out."""
    times = [(product.pyclmm(), product.cublas()) for _ in range(rounds + 1)][1:]
    mine, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    error = product.error() if max(shape) <= 4096 else None
    case = product.case
    allowed = TOLERANCE.get(case.precision if case.dtype in ("float32", "complex64") else case.dtype, 0)
    if error is not None and not error <= allowed:
        raise SystemExit(f"{case.title} {shape}: error {error}")
    print(
        f"{case.title:24} {'x'.join(map(str, dict.fromkeys(shape))):>16} {mine * 1e6:10.1f} us"
        f" {product.flops / mine * 1e-12:7.1f} TFLOP/s  {theirs / mine:6.3f} of cuBLAS {case.peer}"
        f"  {product.plan.config}  launches {' '.join(f'{t:.1f}' for t in product.launches)} us",
        flush=True,
    )
    times_of = {"seconds": mine, "cublas_seconds": theirs, "error": error}
    return {**asdict(case), "shape": shape, "config": str(product.plan.config), **times_of}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--limit", type=float, default=120, help="seconds; what does not fit is left out")
    parser.add_argument("--largest", type=int, default=16384)
    parser.add_argument("--kernels", nargs="+", help="only these")
    options = parser.parse_args()
    queue = new_queue(find_device("nvidia"), profiling=True)
    about = {"device": queue.device.name, "driver": queue.device.driver_version, "pyclmm": pyclmm.__version__}
    about["date"] = datetime.date.today().isoformat()
    print(about, flush=True)
    started, rows = time.perf_counter(), []
    for case in (c for c in CASES if not options.kernels or c.kernel in options.kernels):
        oblong = OBLONG if case.sizes is CUBES else ()
        for shape in (*((n, n, n) for n in case.sizes if n <= options.largest), *oblong):
            if time.perf_counter() - started > options.limit:
                print("out of time before", case.title, shape)
                break
            rounds = options.rounds if max(shape) < 8192 else max(3, options.rounds // 3)
            rows.append(measured(Product(queue, case, shape), shape, rounds))
            if options.json:
                options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
