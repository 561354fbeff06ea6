"""Measures the host time of a warm call beside a bare enqueue of the same kernel.

    python benchmarks/host_cost.py [--device NAME] [--size 16] [--rounds 400] [--json FILE]

With device Arrays a call is compared with enqueuing the bare kernel through PyOpenCL, with NumPy arrays with
enqueuing the bare kernel and waiting for it. The bare enqueue calls a kept Kernel object with its scalar
types set, and sets every argument: the fastest way that PyOpenCL documents. Below it stands the driver's
function alone, called through ctypes with the arguments set before and without an event. On an NVIDIA device
torch.mm(out=) and cupy.matmul(out=) stand beside it, if they are installed.

"Same" calls have the operands of the call before. "Others" are Arrays of the same layout in other memory:
four sets in turn; of bound calls there is one for each set. Every few calls the queue is drained, untimed, so
that the host's work is counted and not the device's. A CPU device computes on the cores that the caller
needs, so there a user event holds the queue until the calls have been timed; calls that wait for their result
run without. Each round runs every case, beginning with another one. Times are microseconds a call; the ratio
to the bare enqueue is the median of the rounds' ratios. Matrices are 16 x 16 unless --size says otherwise, so
the kernel takes almost no time.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import importlib
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.kernels.interface import Launch, gemm_args
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.program import new_kernel
from pyclmm.opencl.queues import new_queue
from pyclmm.problem.canonical import checked_gemm
from pyclmm.problem.gemm import dense

BURST = 8  # calls between drains; PyOpenCL's Arrays keep at most 12 events
SETS = 4  # sets of operands of the cases with others
BARE, BARE_WAIT = "bare enqueue", "bare enqueue and wait"
Call = Callable[[], object]
Operands = tuple[cla.Array, cla.Array, cla.Array]  # a, b, out


@dataclass
class Case:
    """A call to time, and what waits for the end of its work on the device."""

    name: str
    call: Call
    drain: Call
    hold: Callable[[], Call] = lambda: lambda: None  # stops the device, and returns what lets it go on


class Bare:
    """The kernel of a product without pyclmm's calls."""

    def __init__(self, queue: cl.CommandQueue, operands: Operands) -> None:
        a, b, out = operands
        info = device_info(queue.device)
        spec = dense(tuple(a.shape), a.dtype)
        problem = checked_gemm(spec, spec, out=spec).problem
        family = next(k for k in pyclmm.KERNELS if k.name == "tiled")
        launch: Launch = family.launches(problem, family.configs(problem, info)[0], info).launches[0]
        dtypes = [_dtype(arg) for arg in launch.args]
        values = {"a": a.base_data, "b": b.base_data, "out": out.base_data, "alpha": 1.0, "beta": 0.0}
        self.queue, self.launch = queue, launch
        self.kernel = new_kernel(queue.context, launch.program, launch.kernel)
        self.kernel.set_scalar_arg_dtypes(dtypes)
        self.args = [values.get(x, 0) if isinstance(x, str) else x.item() for x in gemm_args(problem)]

    def enqueue(self) -> cl.Event:
        """Set every argument and enqueue, through PyOpenCL."""
        return self.kernel(self.queue, self.launch.global_size, self.launch.local_size, *self.args)

    def through_ctypes(self) -> Call:
        """A call of the driver's function alone, without an event."""
        function = ctypes.CDLL(cl._cl.__file__).clEnqueueNDRangeKernel
        sizes = [(ctypes.c_size_t * len(x))(*x) for x in (self.launch.global_size, self.launch.local_size)]
        pointer, number = ctypes.c_void_p, ctypes.c_uint32
        fixed = (
            pointer(self.queue.int_ptr),
            pointer(self.kernel.int_ptr),
            number(len(sizes[0])),
            None,
            *sizes,
        )
        self.kernel.set_args(*self.args)

        def enqueue() -> None:
            if function(*fixed, number(0), None, None):
                raise SystemExit("clEnqueueNDRangeKernel failed")

        return enqueue


def _dtype(arg: object) -> object:
    if isinstance(arg, np.generic):
        return arg.dtype
    if str(arg).endswith("_offset"):
        return np.int64
    return np.float32 if arg in ("alpha", "beta") else None


def operand_sets(queue: cl.CommandQueue, size: int) -> list[Operands]:
    rng = np.random.default_rng(1)
    shape = (size, size)
    return [
        (
            cla.to_device(queue, rng.standard_normal(shape, dtype=np.float32)),
            cla.to_device(queue, rng.standard_normal(shape, dtype=np.float32)),
            cla.empty(queue, shape, np.float32),
        )
        for _ in range(SETS)
    ]


def cases(queue: cl.CommandQueue, size: int) -> list[Case]:
    sets = operand_sets(queue, size)
    a, b, out = sets[0]
    x, y = a.get(), b.get()
    same, other, on_numpy = (
        pyclmm.Matmul(a, b, out=out, kernel="tiled"),
        pyclmm.Matmul(a, b, out=out, kernel="tiled"),
        pyclmm.Matmul(x, y, queue=queue, kernel="tiled"),
    )
    bare, in_turn = Bare(queue, sets[0]), itertools.cycle(sets)
    bound, bounds = (
        same.bind(a, b, out=out),
        itertools.cycle([other.bind(a, b, out=out) for a, b, out in sets]),
    )

    def plan_others() -> None:
        a, b, out = next(in_turn)
        other(a, b, out=out)

    def matmul_others() -> None:
        a, b, out = next(in_turn)
        pyclmm.matmul(a, b, out=out, kernel="tiled")

    def bound_others() -> None:
        next(bounds)()

    def drain() -> None:
        queue.finish()
        for _, _, out in sets:
            out.events.clear()

    calls: dict[str, Call] = {
        BARE: bare.enqueue,
        "the driver's function through ctypes": bare.through_ctypes(),
        "call = plan.bind(a, b, out=out): call()": bound,
        "bound calls, others": bound_others,
        "plan(a, b, out=out), same": lambda: same(a, b, out=out),
        "plan(a, b, out=out), others": plan_others,
        "matmul(a, b, out=out), same": lambda: pyclmm.matmul(a, b, out=out, kernel="tiled"),
        "matmul(a, b, out=out), others": matmul_others,
        "matmul(a, b)": lambda: pyclmm.matmul(a, b, kernel="tiled"),
        BARE_WAIT: lambda: bare.enqueue().wait(),
        "NumPy: plan(x, y)": lambda: on_numpy(x, y),
        "NumPy: matmul(x, y)": lambda: pyclmm.matmul(x, y, queue=queue, kernel="tiled"),
    }

    def hold() -> Call:
        gate = cl.UserEvent(queue.context)
        cl.enqueue_marker(queue, wait_for=[gate])
        return lambda: gate.set_status(cl.command_execution_status.COMPLETE)

    held = [name for name in calls if name != BARE_WAIT and not name.startswith("NumPy")]
    if not queue.device.type & cl.device_type.CPU:
        held = []
    return [
        Case(name, call, drain, hold) if name in held else Case(name, call, drain)
        for name, call in calls.items()
    ]


def peers(queue: cl.CommandQueue, size: int) -> Iterator[Case]:
    """The same product in PyTorch and CuPy, on an NVIDIA device. A line says what is not there."""
    if "NVIDIA" not in queue.device.vendor.upper():
        print("torch.mm and cupy.matmul are not compared: the device is not NVIDIA's")
        return
    x = np.ones((size, size), np.float32)
    try:
        torch = importlib.import_module("torch")
        a, b, out = (torch.from_numpy(x).cuda() for _ in range(3))
        yield Case("torch.mm(a, b, out=out)", lambda: torch.mm(a, b, out=out), torch.cuda.synchronize)
    except ImportError:
        print("torch is not installed")
    try:
        cupy = importlib.import_module("cupy")
        d, e, into = (cupy.asarray(x) for _ in range(3))
        wait = cupy.cuda.get_current_stream().synchronize
        yield Case("cupy.matmul(a, b, out=out)", lambda: cupy.matmul(d, e, out=into), wait)
    except ImportError:
        print("cupy is not installed")


def measure(all_cases: list[Case], rounds: int) -> dict[str, list[float]]:
    """Microseconds of a call in each round, for each case."""
    times: dict[str, list[float]] = {case.name: [] for case in all_cases}
    for number in range(rounds + 1):
        first = number % len(all_cases)
        for case in all_cases[first:] + all_cases[:first]:
            case.call()  # the last call is then this case's
            case.drain()
            let_go = case.hold()
            start = time.perf_counter()
            for _ in range(BURST):
                case.call()
            spent = (time.perf_counter() - start) / BURST * 1e6
            let_go()
            case.drain()
            if number:  # the first round warms up
                times[case.name].append(spent)
    return times


def row(times: dict[str, list[float]], name: str) -> dict[str, Any]:
    """What is printed of a case."""
    ratios = [mine / bare for mine, bare in zip(times[name], times[BARE], strict=True)]
    least = min(times[name])
    return {"us": statistics.median(times[name]), "least_us": least, "x_bare": statistics.median(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--size", type=int, default=16, help="rows and columns of the matrices")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    queue = new_queue(find_device(arguments.device))
    info = device_info(queue.device)
    print(f"{info.name}, driver {info.driver_version}, {arguments.size} x {arguments.size}")
    times = measure(
        [*cases(queue, arguments.size), *peers(queue, arguments.size)],
        arguments.rounds,
    )
    rows = {name: row(times, name) for name in times}
    print(f"{'':40s}  median   least   x bare")
    for name, found in rows.items():
        print(f"{name:40s} {found['us']:7.1f} {found['least_us']:7.1f} {found['x_bare']:8.2f}")
    if arguments.json:
        about = {
            "device": info.name,
            "driver": info.driver_version,
            "pyopencl": cl.VERSION_TEXT,
            "date": datetime.date.today().isoformat(),
            "size": arguments.size,
            "rounds": arguments.rounds,
        }
        arguments.json.write_text(json.dumps(about | {"calls": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
