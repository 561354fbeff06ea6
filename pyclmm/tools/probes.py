"""Measures a device's rates (kernels/rates.py) in under a minute: `pyclmm tune --device`.

Small kernels (cl/probes.cl) are timed by the host's clock:

    gate | launch, launch, .. launch | wait

The gate is a kernel that keeps the device busy until the host has enqueued all others. The time of a launch
is the difference between many launches and few, so gate and wait cancel. The rates of matrix units follow
from the time of a large product and its estimate.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from ..errors import LaunchError, PyclmmError
from ..kernels import KERNELS, Kernel
from ..kernels.device import DeviceInfo
from ..kernels.interface import Program
from ..opencl import clock, steps, user_rates
from ..opencl.arrays import empty
from ..opencl.devices import device_info
from ..opencl.host_memory import allocate
from ..opencl.program import new_kernel, settle
from ..opencl.queues import new_queue
from ..plan import Matmul
from ..problem.canonical import problem_of
from ..problem.gemm import GemmProblem
from ..selection.select import refusal
from .terminal import OnStage, Stage, unheard

_NEVER = np.uint32(0xFFFFFFF7)  # no probe has this result
_TURN = 0.02  # seconds of launches in a measurement
_REPEATS = 5
_FEW = 100  # most launches of the shorter one of two runs
_HOST = 40e-6  # seconds: more than the host needs for a launch
_LEAST = 1e-9  # seconds
_STEPS = 256  # of the loops of read_local and multiply_add
_CHAINS = 8  # as in cl/probes.cl
_CHASED = 1 << 22  # bytes that are read in random order
_READ = tuple(n << shift for shift in range(18, 28) for n in (2, 3))  # bytes of reads, to find the cache
_CACHED = 1.25  # what fits the cache is read faster than memory by this at least
_MATRIX = (
    ("matrix16", "float16", "highest"),
    ("matrix32", "float32", "medium"),
    ("matrix64", "float64", "highest"),
    ("matrix8", "int8", "highest"),
)
_SIDE = 4096  # of the product that shows the rate of matrix units


def measure(device: cl.Device, on_stage: OnStage = unheard) -> Iterator[dict[str, float]]:
    """The rates of *device* by name, one group after the other. *on_stage* is called before each group."""
    probes = _Probes(new_queue(device), device_info(device))
    found: dict[str, float] = {}
    groups: dict[str, Callable[[], dict[str, float]]] = {
        "launches": probes.launches,
        "global memory": probes.memory,
        "multiply-adds": probes.arithmetic,
        "matrix units": lambda: _of_matrix_units(probes.queue, probes.info, found),
    }
    for number, (title, group) in enumerate(groups.items()):
        on_stage(Stage(title, number, len(groups)))
        own = group()
        found |= own
        yield own


def keep(device: cl.Device, rates: Mapping[str, float]) -> bool:
    """Keep all *rates* of *device* for later calls. False if they cannot be written."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    kept = user_rates.write(device_info(device).identity, rates, today)
    device_info.cache_clear()
    return kept


class _Probes:
    """The probes of one queue."""

    def __init__(self, queue: cl.CommandQueue, info: DeviceInfo) -> None:
        self.queue, self.info = queue, info
        self._out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 64)
        self._items = min(256, info.max_work_group_size, info.max_work_item_sizes[0])
        self._full = self._items * self.info.units * max(1, self.info.unit.work_items // self._items)
        self._gate_kernel = new_kernel(queue.context, self._program(), "multiply_add")
        self._gate_steps = 0  # a second; 0: not known yet
        self._launch = 0.0  # seconds

    def launches(self) -> dict[str, float]:
        self._launch = self._seconds("nothing", self._items * self.info.units)
        many = 8 * self._full // self._items
        group = (self._seconds("nothing", many * self._items) - self._launch) / many
        return {"launch": self._launch, "group": max(0.0, group)}

    def memory(self) -> dict[str, float]:
        return {"latency": self._latency()} | self._reading()

    def arithmetic(self) -> dict[str, float]:
        double = self._multiply_add("double") if self.info.has_fp64 else 0.0
        single, whole = self._multiply_add("float"), self._multiply_add("uint")
        dots = 4 * self._multiply_add("uint", dot_bytes=True) if self.info.dots_bytes else 0.0
        return {"local": self._local(), "float32": single, "float64": double, "int32": whole, "dot8": dots}

    def _latency(self) -> float:
        """Seconds of a read that the next one waits for, in random order."""
        count, steps = _CHASED // 4, 4096
        order = np.random.default_rng(0).permutation(count).astype(np.uint32)
        following = np.empty(count, np.uint32)
        following[order] = np.roll(order, -1)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        chased = cl.Buffer(self.queue.context, flags, hostbuf=following)
        return self._seconds("follow", 1, chased, np.uint32(steps), items=1) / steps

    def _reading(self) -> dict[str, float]:
        """Bytes per second from memory and from the cache, and the cache's bytes."""
        most = min(self.info.max_mem_alloc_size // 4, self.info.global_mem_size // 16)
        sizes = [size for size in _READ if size <= most] or [1 << 16]
        source = allocate(self.queue.context, sizes[-1], self.info, "the memory to read")
        cl.enqueue_fill_buffer(self.queue, source, np.zeros(1, np.uint8), 0, sizes[-1])
        rates = []
        for size in sizes:
            seconds = self._seconds("read_all", min(self._full, size // 16), source, np.uint32(size // 16))
            rates.append(size / max(seconds - self._launch, seconds / 10))
        memory = rates[-1]
        inside = [(rate, size) for rate, size in zip(rates, sizes, strict=True) if rate > _CACHED * memory]
        cache = statistics.median([rate for rate, _ in inside] or [memory])
        return {"memory": memory, "cache": cache, "cache_size": float(inside[-1][1] if inside else 0)}

    def _local(self) -> float:
        groups = self._full // self._items
        seconds = self._seconds("read_local", groups * self._items, np.uint32(_STEPS))
        return groups * self._items * _STEPS * 4 * 16 / seconds

    def _multiply_add(self, kind: str, dot_bytes: bool = False) -> float:
        """Multiply-adds of *kind*, or dot products of four bytes, a second. A CPU gets vectors of the width
        of its registers.
        """
        bits = {"double": 64}.get(kind, 32)
        lanes = self.info.vector_bits // bits if self.info.is_cpu else 1
        real = f"{kind}{lanes}" if lanes > 1 else kind
        program = self._program(real, dot_bytes)
        seconds = self._seconds("multiply_add", self._full, np.uint32(_STEPS), program=program)
        return self._full * lanes * _CHAINS * (_STEPS + 1) / seconds

    def _program(self, real: str = "float", dot_bytes: bool = False) -> Program:
        defines = (
            ("REAL", real), ("DOT_BYTES", int(dot_bytes)), ("ITEMS", self._items),
            ("IN_RUNS", int(self.info.is_cpu)),
        )  # fmt: skip
        return Program("probes.cl", defines)

    def _seconds(
        self, name: str, count: int, *more: Any, program: Program | None = None, items: int = 0
    ) -> float:
        """Seconds of a launch of *count* work-items that follows another one: the median of several."""
        program = program or self._program()
        kernel = new_kernel(self.queue.context, program, name)
        kernel.set_args(self._out, _NEVER, *more)
        local = (items or self._items,)
        size = (max(1, count // local[0]) * local[0],)

        def run(launches: int, gate: float = 0.0) -> None:
            if gate:
                self._enqueue(self._gate(gate), (self._items,), (self._items,))
            for _ in range(launches):
                self._enqueue(kernel, size, local)
            self.queue.finish()

        once = clock.least(lambda: run(1), 3)
        settle(self.queue.context, [program])
        few = max(1, min(_FEW, int(_TURN / 4 / once)))
        gate = 4 * few * _HOST
        # On a busy machine it may come out negative.
        return max(clock.marginal(lambda launches: run(launches, gate), few, _REPEATS), _LEAST)

    def _enqueue(self, kernel: cl.Kernel, size: tuple[int, ...], local: tuple[int, ...]) -> None:
        launch = steps.eventless(self.queue, kernel, steps.Sizes.of(size, local, None))
        if not steps.enqueue_eventless(launch):
            raise LaunchError(f"the driver refuses the probe {kernel.function_name}")

    def _gate(self, seconds: float) -> cl.Kernel:
        """The kernel of one work-group that runs for about *seconds*."""
        if self._gate_steps == 0:
            self._gate_steps = _STEPS
            times = []
            for steps in (_STEPS, 64 * _STEPS):
                self._gate_kernel.set_args(self._out, _NEVER, np.uint32(steps))
                times.append(clock.least(self._run_gate, 3))
            self._gate_steps = int(63 * _STEPS / max(times[1] - times[0], 1e-6))
        steps = min(2**31, max(1, int(seconds * self._gate_steps)))
        self._gate_kernel.set_args(self._out, _NEVER, np.uint32(steps))
        return self._gate_kernel

    def _run_gate(self) -> None:
        self._enqueue(self._gate_kernel, (self._items,), (self._items,))
        self.queue.finish()


def _of_matrix_units(
    queue: cl.CommandQueue, device: DeviceInfo, others: Mapping[str, float]
) -> dict[str, float]:
    """The rates of the matrix units that this device's families reach; 0 where there is none. *others*: its
    other rates.
    """
    rates, measured = device.rates.with_measured(others, "measured here"), {}
    device = replace(device, user_rates=rates)
    for name, dtype, precision in _MATRIX:
        problem = problem_of(_SIDE, _SIDE, _SIDE, np.dtype(dtype), "NT", precision)
        families = [
            k for k in KERNELS
            if k.matrix_units and k.automatic and not k.in_parts(problem) and not refusal(k, problem, device)
        ]  # fmt: skip
        found = [_matrix_rate(queue, device, family, problem, name) for family in families]
        measured[name] = max(found, default=0.0)
        device = replace(device, user_rates=rates.with_measured(measured, rates.source))
    return measured


def _matrix_rate(
    queue: cl.CommandQueue, device: DeviceInfo, family: Kernel, problem: GemmProblem, name: str
) -> float:
    """The rate called *name*, as much higher as the product is faster than its estimate; 0 if it fails."""
    config = family.configs(problem, device)[0]
    try:
        seconds = _product_seconds(queue, family.name, problem)
    except (PyclmmError, cl.Error):
        return 0.0
    return float(getattr(device.rates, name)) * family.estimate(problem, config, device) / seconds


def _product_seconds(queue: cl.CommandQueue, name: str, problem: GemmProblem) -> float:
    """Seconds of a product by the family called *name*, on random numbers."""
    numbers = np.random.default_rng(0).standard_normal((_SIDE, _SIDE), dtype=np.float32) * 8
    a, b = (cla.to_device(queue, x.astype(problem.a_type)) for x in (numbers, numbers[::-1]))
    precision: Any = problem.precision
    out = empty(queue, (_SIDE, _SIDE), problem.out_type)
    plan = Matmul(a, b, out=out, trans_b="T", kernel=name, precision=precision)
    plan(a, b, out=out)

    def run(calls: int) -> None:
        for _ in range(calls):
            plan.enqueue(a, b, out=out)
        queue.finish()

    few = max(1, int(_TURN / clock.least(lambda: run(1), 2)))
    return clock.marginal(run, few, 3)
