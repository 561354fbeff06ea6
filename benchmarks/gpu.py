"""Compares products on a GPU with cuBLAS (through PyTorch, TF32 off) and CLBlast, in one run.

    python benchmarks/gpu.py [--json FILE] [--clblast libclblast.so.1] [--rounds 9] [--tuned 3] [--limit 300]
                             [--dtype float64] [--shapes N]

pyclmm's time is measured with profiling events, from the start of a product's first launch to the end of its
last. cuBLAS's is measured with CUDA events around as many calls as fill 0.4 ms, divided by their number; so
its launches overlap, which favours cuBLAS. CLBlast's is host time, also divided by the number of calls.
Rounds are interleaved, results are medians, data are random; every result is compared with a float64 product
on the device. ``--tuned N`` also times the model's next N configurations; the best of all stands for a tuned
choice. ``--shapes N`` stops after the first N shapes. The tables made of the file divide by cuBLAS's best
time in all files (peers.py).
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import math
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import torch
from cuda_graph import elapsed

import pyclmm
from pyclmm.kernels import kernel_named
from pyclmm.kernels.interface import Program
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.program import built
from pyclmm.opencl.queues import new_queue
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.gemm import GemmProblem
from pyclmm.selection.select import candidates

CUBES = (512, 1024, 2048, 4096, 8192, 1000, 4095, 4097)
SHAPES = [(1, n, n, n) for n in CUBES] + [
    (1, 16, 4096, 4096), (1, 4096, 16, 4096), (1, 4096, 4096, 16), (1, 1, 8192, 8192),
    (1, 256, 256, 65536), (1, 65536, 256, 256), (64, 512, 512, 512), (1024, 128, 128, 128),
]  # fmt: skip
LAYOUTS = ("NN", "NT", "TN")
BURST = 0.4e-3  # seconds of calls between two CUDA events
TOLERANCE = 1e-5  # relative error by norm; float32 sums of random data are near 1e-6


def about(device: cl.Device) -> dict[str, Any]:
    """The device's fields in a file of results. ``float32_limit``: operations/s of its float32 units at the
    reported clock, for NVIDIA devices of compute capability 8.6 and later, with 128 units a compute unit."""
    known = (device_info(device).compute_capability or (0, 0)) >= (8, 6)
    limit = 256e6 * device.max_compute_units * device.max_clock_frequency if known else None
    return {"device": device.name, "driver": device.driver_version, "pyclmm": pyclmm.__version__,
            "float32_limit": limit}  # fmt: skip


def product(shape: tuple[int, ...], layout: str, dtype: np.dtype[Any]) -> GemmProblem:
    """The product of a shape (stack, M, N, K) as kernels see it."""
    z, m, n, k = shape
    return problem_of(m, n, k, dtype, layout, stack=(z,) if z > 1 else ())


def compile_all(
    queue: cl.CommandQueue,
    products: list[tuple[tuple[int, ...], str]],
    dtype: np.dtype[Any],
    kernel: str,
    tuned: int,
) -> int:
    """Compile the contests' programs in threads, because the driver takes seconds for each."""
    info = device_info(queue.device)
    programs: dict[Program, None] = {}
    for shape, layout in products:
        problem = product(shape, layout, dtype)
        choice = next(candidates(problem, info, kernel))
        for config in choice.kernel.configs(problem, info)[: 1 + tuned]:
            launches = choice.kernel.launches(problem, config, info).launches
            programs |= {launch.program: None for launch in launches}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda program: built(queue.context, program), programs))
    return len(programs)


class GpuProduct:
    """One product with the same numbers for every contestant; a method for each returns seconds."""

    def __init__(
        self, queue: cl.CommandQueue, numbers: np.ndarray[Any, Any], shape: tuple[int, ...], layout: str
    ):
        self.queue, self.shape, self.layout = queue, shape, layout
        z, m, n, k = shape
        self.dtype = numbers.dtype
        self.flops = 2 * z * m * n * k
        sides = ((k, m) if layout[0] == "T" else (m, k), (n, k) if layout[1] == "T" else (k, n))
        stack = (z,) if z > 1 else ()
        host = [numbers[i * 777 :][: z * s[0] * s[1]].reshape(*stack, *s) for i, s in enumerate(sides)]
        self.stored = [cla.to_device(queue, x) for x in host]
        self.torch = [self._operand(torch.from_numpy(x).cuda(), t) for x, t in zip(host, layout, strict=True)]
        self.out = cla.empty(queue, (*stack, m, n), self.dtype)
        self.plans: dict[str, pyclmm.Matmul[Any]] = {}
        self.burst = max(1, int(BURST / (self.flops / 40e12 + 5e-6)))

    @staticmethod
    def _operand(x: Any, trans: str) -> Any:
        return x.transpose(-1, -2) if trans == "T" else x

    def views(self) -> list[Any]:
        axes = (0, 2, 1) if self.shape[0] > 1 else (1, 0)
        pairs = zip(self.stored, self.layout, strict=True)
        return [x.transpose(axes) if t == "T" else x for x, t in pairs]

    def plan(self, name: str, kernel: Any, precision: Any = "highest") -> float:
        """Prepare a contestant and return its error."""
        cl.enqueue_fill_buffer(self.queue, self.out.base_data, self.dtype.type(np.nan), 0, self.out.nbytes)
        self.plans[name] = pyclmm.Matmul(*self.views(), out=self.out, kernel=kernel, precision=precision)
        self.pyclmm(name)
        return self.error()

    def error(self) -> float:
        a, b = (x.double() for x in self.torch)
        want = a @ b
        got = torch.from_numpy(self.out.get()).cuda().double()
        return float((got - want).norm() / want.norm())

    def pyclmm(self, name: str) -> float:
        """Seconds of one of several calls that wait for a user event and then run without the host."""
        gate = cl.UserEvent(self.queue.context)
        plan, count = self.plans[name], min(8, self.burst)
        calls = [
            plan.enqueue(*self.views(), out=self.out, wait_for=[gate] if i == 0 else None)
            for i in range(count)
        ]
        gate.set_status(cl.command_execution_status.COMPLETE)
        calls[-1][-1].wait()
        return 1e-9 * statistics.median(x[-1].profile.end - x[0].profile.start for x in calls)

    def cublas(self) -> float:
        return elapsed(lambda: torch.matmul(*self.torch), self.burst)

    def clblast(self, library: ctypes.CDLL) -> float:
        z, m, n, k = self.shape
        (a, b), out, size = self.stored, self.out, ctypes.c_size_t
        lda, ldb = (x.shape[-1] for x in (a, b))
        trans = [112 if t == "T" else 111 for t in self.layout]
        queue, pointer = ctypes.c_void_p(self.queue.int_ptr), ctypes.c_void_p
        one, nil = ctypes.c_float(1), ctypes.c_float(0)
        strides = [(size(x.shape[-1] * x.shape[-2]),) if z > 1 else () for x in (a, b, out)]
        args = [101, *trans, size(m), size(n), size(k), one,
                pointer(a.data.int_ptr), size(0), size(lda), *strides[0],
                pointer(b.data.int_ptr), size(0), size(ldb), *strides[1], nil,
                pointer(out.data.int_ptr), size(0), size(n), *strides[2]]  # fmt: skip
        call = library.CLBlastSgemmStridedBatched if z > 1 else library.CLBlastSgemm
        args += [size(z)] if z > 1 else []
        self.queue.finish()
        start = time.perf_counter()
        for _ in range(self.burst):
            status = call(*args, ctypes.byref(queue), None)
            if status:
                raise RuntimeError(f"CLBlast: status {status}")
        self.queue.finish()
        return (time.perf_counter() - start) / self.burst


def contestants(timed: GpuProduct, kernel: str, tuned: int) -> dict[str, float]:
    """Plan auto and the family's first configurations, and return the error of each."""
    errors = {"auto": timed.plan("auto", kernel)}
    plan = timed.plans["auto"]
    family = kernel_named(str(plan.kernel))
    info = device_info(timed.queue.device)
    problem = product(timed.shape, timed.layout, timed.dtype)
    for config in family.configs(problem, info)[1 : 1 + tuned]:
        errors[str(config)] = timed.plan(str(config), (family.name, config))
    wrong = {name: e for name, e in errors.items() if not e < TOLERANCE}
    if wrong:
        raise SystemExit(f"wrong result, {timed.shape} {timed.layout}: {wrong}")
    return errors


def measure(
    timed: GpuProduct, kernel: str, tuned: int, rounds: int, library: ctypes.CDLL | None
) -> dict[str, Any]:
    """Median seconds of every contestant."""
    contestants(timed, kernel, tuned)
    runs: dict[str, Any] = {name: (lambda name=name: timed.pyclmm(name)) for name in timed.plans}
    runs["cublas"] = timed.cublas
    if library is not None:
        runs["clblast"] = lambda: timed.clblast(library)
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            samples[name] += [
                run() for _ in range(1 if name in ("cublas", "clblast") else min(4, timed.burst))
            ]
            torch.cuda.synchronize()
    seconds = {
        name: statistics.median(times[len(times) // (rounds + 1) :]) for name, times in samples.items()
    }
    auto = timed.plans["auto"]
    return {
        "shape": list(timed.shape),
        "layout": timed.layout,
        "flops": timed.flops,
        "kernel": auto.kernel,
        "config": str(auto.config),
        "seconds": seconds,
    }


def line(row: dict[str, Any]) -> str:
    """One row of the table: the peers' times divided by pyclmm's, so over 1 pyclmm is faster."""
    s = row["seconds"]
    best = min(t for n, t in s.items() if n not in ("cublas", "clblast"))
    shape = "x".join(map(str, row["shape"] if row["shape"][0] > 1 else row["shape"][1:]))
    clblast = f"{s['clblast'] / s['auto']:6.2f}" if "clblast" in s else "     -"
    return (
        f"{shape:>18} {row['layout']}  {s['auto'] * 1e6:9.1f} us"
        f" {row['flops'] / s['auto'] / 1e12:6.1f} TFLOP/s"
        f"  cuBLAS {s['cublas'] / s['auto']:5.2f}  CLBlast {clblast}  of tuned {best / s['auto']:4.2f}"
        f"  {row['kernel']} {row['config']}"
    )


def mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--clblast", help="the shared library; without it CLBlast does not run")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tuned", type=int, default=3)
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds; shapes that do not fit are left out"
    )
    parser.add_argument("--shapes", type=int, default=len(SHAPES))
    parser.add_argument("--kernel", default="auto", help="the family to time, instead of auto")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    options = parser.parse_args()
    start = time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = False
    library = ctypes.CDLL(options.clblast) if options.clblast and options.dtype == "float32" else None
    queue = new_queue(find_device("nvidia"), profiling=True)
    numbers = np.random.default_rng(0).random(8192 * 8192 + 4096, dtype=np.dtype(options.dtype))
    numbers -= 0.5
    heading = {**about(queue.device), "date": datetime.date.today().isoformat(), "dtype": options.dtype}
    print(heading, flush=True)
    products = [(shape, layout) for shape in SHAPES[: options.shapes] for layout in LAYOUTS]
    count = compile_all(queue, products, numbers.dtype, options.kernel, options.tuned)
    print(f"{count} programs compiled after {time.perf_counter() - start:.0f} s", flush=True)
    rows = []
    for shape, layout in products:
        if time.perf_counter() - start > options.limit:
            print(f"out of time before {shape} {layout}")
            break
        rounds = max(3, min(options.rounds, int(0.2 / (2 * math.prod(shape) / 40e12))))
        rows.append(
            measure(GpuProduct(queue, numbers, shape, layout), options.kernel, options.tuned, rounds, library)
        )
        print(line(rows[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps({**heading, "rows": rows}, indent=1))
    ratios = [r["seconds"]["cublas"] / r["seconds"]["auto"] for r in rows]
    print(f"over cuBLAS: geometric mean {mean(ratios):.3f}, least {min(ratios):.3f}")
    if library:
        ratios = [r["seconds"]["clblast"] / r["seconds"]["auto"] for r in rows]
        print(f"over CLBlast: geometric mean {mean(ratios):.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
