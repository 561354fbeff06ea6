"""Measures the host time of a warm call.

With device Arrays it is compared with enqueuing the bare kernel through PyOpenCL, with NumPy arrays with
enqueuing the bare kernel and waiting for it.

    python benchmarks/host_cost.py [--device NAME] [--json FILE]

Every few calls the queue is drained, untimed, so that the host's work is counted and not the device's.
Rounds are interleaved; results are medians in microseconds a call. The bare enqueue calls a kept Kernel
object with its scalar types set: the fastest way that PyOpenCL documents. Matrices are 16 x 16, so the kernel
takes almost no time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.kernels.interface import gemm_args
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.program import new_kernel
from pyclmm.opencl.queues import new_queue
from pyclmm.problem.canonical import checked_gemm
from pyclmm.problem.gemm import dense

BURST = 8  # calls between drains; PyOpenCL's Arrays keep at most 12 events
ROUNDS = 400


def bare_enqueue(
    queue: cl.CommandQueue, a: cla.Array, b: cla.Array, out: cla.Array
) -> Callable[[], cl.Event]:
    """A call that sets every argument of the plan's kernel and enqueues it."""
    info = device_info(queue.device)
    spec = dense(tuple(a.shape), a.dtype)
    problem = checked_gemm(spec, spec, out=spec).problem
    family = next(k for k in pyclmm.KERNELS if k.name == "tiled")
    launch = family.launches(problem, family.configs(problem, info)[0], info).launches[0]
    dtypes = [_dtype(arg) for arg in launch.args]
    kernel = new_kernel(queue.context, launch.program, launch.kernel, dtypes)
    values = {"a": a.base_data, "b": b.base_data, "alpha": 1.0, "beta": 0.0}
    buffers = ("out", "c", "bias", "batch_offsets")
    args = [
        values.get(x, out.base_data if x in buffers else 0) if isinstance(x, str) else x.item()
        for x in gemm_args(problem)
    ]

    def enqueue() -> cl.Event:
        return kernel(queue, launch.global_size, launch.local_size, *args)

    return enqueue


def _dtype(arg: object) -> object:
    if isinstance(arg, np.generic):
        return arg.dtype
    if str(arg).endswith("_offset"):
        return np.int64
    return np.float32 if arg in ("alpha", "beta") else None


def cases(queue: cl.CommandQueue) -> tuple[dict[str, Callable[[], object]], cla.Array]:
    rng = np.random.default_rng(1)
    a, b = (cla.to_device(queue, rng.standard_normal((16, 16), dtype=np.float32)) for _ in range(2))
    out = cla.empty(queue, (16, 16), np.float32)
    plan = pyclmm.Matmul(a, b, out=out, kernel="tiled")
    bare = bare_enqueue(queue, a, b, out)
    x, y = a.get(), b.get()
    on_numpy = pyclmm.Matmul(x, y, queue=queue, kernel="tiled")
    return {
        "bare enqueue": bare,
        "plan(a, b, out=out)": lambda: plan(a, b, out=out),
        "matmul(a, b, out=out)": lambda: pyclmm.matmul(a, b, out=out, kernel="tiled"),
        "matmul(a, b)": lambda: pyclmm.matmul(a, b, kernel="tiled"),
        "bare enqueue and wait": lambda: bare().wait(),
        "NumPy: plan(x, y)": lambda: on_numpy(x, y),
        "NumPy: matmul(x, y)": lambda: pyclmm.matmul(x, y, queue=queue, kernel="tiled"),
    }, out


def measure(queue: cl.CommandQueue) -> dict[str, float]:
    """Median microseconds of a call, for each case."""
    calls, out = cases(queue)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(BURST):
                call()
            times[name].append((time.perf_counter() - start) / BURST * 1e6)
            queue.finish()
            out.events.clear()
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    queue = new_queue(find_device(arguments.device))
    info = device_info(queue.device)
    result = measure(queue)
    print(f"{info.name}, driver {info.driver_version}")
    for name, microseconds in result.items():
        print(f"{name:24s} {microseconds:7.1f} us   {microseconds / result['bare enqueue']:.2f} x bare")
    if arguments.json:
        record = {"device": info.name, "driver": info.driver_version, "microseconds": result}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
