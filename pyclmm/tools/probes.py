"""Measures a device's rates (kernels/rates.py) in under a minute: `pyclmm tune --device`.

Small kernels (cl/probes.cl) are timed by the host's clock:

    gate | launch, launch, .. launch | wait

The gate is a kernel that keeps the device busy until the host has enqueued all others. The time of a launch
is the difference between many launches and few, so gate and wait cancel.

The rate of a unit that multiplies is the one at which the estimate of a product equals its time, so it is
whatever the constants of that family are fractions of. Two products are timed, which differ in K alone:

    estimate(long K, rate) - estimate(short K, rate) = seconds(long K) - seconds(short K)

Both have the same tiles. So the launch, the start and the end of work-groups and the stores are in both and
cancel, and with a long K reading the operands is hidden behind the multiply-adds. The equation is solved by
bisection, as an estimate falls with the rate but is no fraction of it: it is a maximum, or a sum of cubes, of
what goes on at the same time. Where multiply-adds are not the longest of these, the time says little about
the rate. Then the rate is the one at which the multiply-adds alone take the time: the unit does that at
least.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any, cast

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from ..errors import LaunchError, PyclmmError, in_short
from ..kernels import KERNELS, Kernel
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.interface import Program
from ..kernels.rates import BOUNDS
from ..opencl import clock, steps, user_rates
from ..opencl.arrays import empty
from ..opencl.devices import device_info
from ..opencl.host_memory import allocate
from ..opencl.program import new_kernel, settle
from ..opencl.queues import new_queue
from ..plan import Matmul
from ..problem.canonical import problem_of
from ..problem.gemm import GemmProblem
from ..problem.literals import Precision
from ..selection.select import offer
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
_RUNS = 4  # that each core of a CPU reads
_CACHED = 1.25  # what fits the cache is read faster than memory by this at least
_ROUNDS = 3  # of timing two products in turn


def measure(
    device: cl.Device, on_stage: OnStage = unheard, on_refusal: Callable[[str], object] = str
) -> Iterator[dict[str, float]]:
    """The rates by name, in groups. *on_stage* is called before each; *on_refusal* with each that stays."""
    queue, info, found = new_queue(device), device_info(device), dict[str, float]()
    probes = _Probes(queue, info, on_refusal)
    groups: dict[str, Callable[[], dict[str, float]]] = {
        "launches": probes.launches,
        "global memory": lambda: probes.latency() | probes.reading(),
        "local memory": probes.inside,
        "multiply-adds": lambda: measured(info, found, partial(_seconds_more, queue), on_refusal),
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

    def __init__(self, queue: cl.CommandQueue, info: DeviceInfo, on_refusal: Callable[[str], object]) -> None:
        self.queue, self.info, self._on_refusal = queue, info, on_refusal
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

    def latency(self) -> dict[str, float]:
        """Seconds of a read that the next one waits for, in random order."""
        count, steps = _CHASED // 4, 4096
        order = np.random.default_rng(0).permutation(count).astype(np.uint32)
        following = np.empty(count, np.uint32)
        following[order] = np.roll(order, -1)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        chased = cl.Buffer(self.queue.context, flags, hostbuf=following)
        return {"latency": self._seconds("follow", 1, chased, np.uint32(steps), items=1) / steps}

    def reading(self) -> dict[str, float]:
        """Bytes per second from memory and from the cache, and the cache's bytes."""
        most = min(self.info.max_mem_alloc_size // 4, self.info.global_mem_size // 16)
        sizes = [size for size in _READ if size <= most] or [1 << 16]
        source = allocate(self.queue.context, sizes[-1], self.info, "the memory to read")
        cl.enqueue_fill_buffer(self.queue, source, np.zeros(1, np.uint8), 0, sizes[-1])
        # On a CPU a work-item reads a run of its own. Intel's compiler makes one vector of 16 work-items of a
        # work-group, which would collect 16 runs element by element: so each has a work-group to itself.
        most_items, items = (_RUNS * self.info.units, 1) if self.info.is_cpu else (self._full, 0)
        rates = []
        for size in sizes:
            count, vectors = min(most_items, size // 16), np.uint32(size // 16)
            seconds = self._seconds("read_all", count, source, vectors, items=items)
            rates.append(size / max(seconds - self._launch, seconds / 10))
        memory = rates[-1]
        inside = [(rate, size) for rate, size in zip(rates, sizes, strict=True) if rate > _CACHED * memory]
        cache = statistics.median([rate for rate, _ in inside] or [memory])
        return {"memory": memory, "cache": cache, "cache_size": float(inside[-1][1] if inside else 0)}

    def inside(self) -> dict[str, float]:
        groups = self._full // self._items
        seconds = self._seconds("read_local", groups * self._items, np.uint32(_STEPS))
        local = groups * self._items * _STEPS * 4 * 16 / seconds
        return {"local": local, "dot8": self._dots() if self.info.dots_bytes else 0.0}

    def _dots(self) -> float:
        """Multiply-adds of dot products of four bytes a second, by more and fewer steps of one launch."""
        program, counts = self._program(dot_bytes=True), (_STEPS, 4 * _STEPS)
        short, long = (
            self._seconds("multiply_add", self._full, np.uint32(steps), program=program) for steps in counts
        )
        work = 4 * self._full * _CHAINS * (counts[1] - counts[0])
        return checked("dot8", work / (long - short or -1.0), self.info, self._on_refusal)

    def _program(self, dot_bytes: bool = False) -> Program:
        defines = (
            ("REAL", "uint" if dot_bytes else "float"), ("DOT_BYTES", int(dot_bytes)), ("ITEMS", self._items),
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
        launch = steps.eventless(self.queue, kernel, size, local)
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


def _seconds_more(queue: cl.CommandQueue, name: str, config: TileConfig, pair: Pair) -> float:
    """Seconds that the second product of *pair* takes more than the first, timed in turn."""
    runs = [_calls(queue, name, config, problem) for problem in pair]
    counts = [max(1, int(_TURN / clock.least(lambda run=run: run(1), 2))) for run in runs]  # type: ignore[misc]
    timed = (partial(clock.marginal, run, few, 1) for run, few in zip(runs, counts, strict=True))
    short, long = clock.in_turn(_ROUNDS, *timed)
    return statistics.median(more - less for less, more in zip(short, long, strict=True))


def _calls(
    queue: cl.CommandQueue, name: str, config: TileConfig, problem: GemmProblem
) -> Callable[[int], None]:
    """What makes so many calls of a product on random numbers and waits for them."""
    draw, precision = np.random.default_rng(0).standard_normal, cast("Precision", problem.precision)
    a, b = (
        cla.to_device(queue, (draw((lines, problem.k), dtype=np.float32) * 8).astype(problem.a_type))
        for lines in (problem.m, problem.n)
    )
    out = empty(queue, (problem.m, problem.n), problem.out_type)
    plan = Matmul(a, b, out=out, trans_b="T", kernel=(name, config), precision=precision)
    plan(a, b, out=out)
    call = plan.bind(a, b, out=out)

    def run(count: int) -> None:
        for _ in range(count):
            call()
        queue.finish()

    return run


Pair = tuple[GemmProblem, GemmProblem]  # with a short and a long K
# Seconds that the second product of a pair takes more than the first, by a family with a configuration
Timer = Callable[[str, TileConfig, Pair], float]

_SIDES = (4096, 2048, 1024, 512)
_LONGEST = 0.05  # seconds: a product that is estimated to take longer is cut to a smaller side
_MEMORY_PART = 8  # of the device's memory may be taken by a product
_FALLBACK = 4.0  # times the least estimate: a family that is estimated to be slower shows no rate
_SLOWEST, _FASTEST = BOUNDS["1/s"]
_NEAR = 1.1  # at a rate so much higher a product must be faster by half of that, or the time says too little


@dataclass(frozen=True)
class Unit:
    """A unit by the name of its rate, and the product that shows it."""

    rate: str
    dtype: str
    precision: Precision = "highest"
    matrix: bool = False

    def suits(self, kernel: Kernel, problem: GemmProblem) -> bool:
        """Whether *kernel* multiplies the product on this unit, as it is."""
        return kernel.automatic and kernel.matrix_units == self.matrix and not kernel.in_parts(problem)


UNITS = (
    Unit("float32", "float32"),
    Unit("float64", "float64"),
    Unit("int32", "int32"),
    Unit("matrix16", "float16", matrix=True),
    Unit("matrix32", "float32", "medium", matrix=True),
    Unit("matrix64", "float64", matrix=True),
    Unit("matrix8", "int8", matrix=True),
)


def measured(
    device: DeviceInfo, others: Mapping[str, float], timer: Timer, on_refusal: Callable[[str], object]
) -> dict[str, float]:
    """The rates of all units beside *others*, 0 for none. *on_refusal* is told of each that stays."""
    found: dict[str, float] = {}
    for unit in UNITS:
        rates = device.rates.with_measured({**others, **found}, "measured here")
        found[unit.rate] = _of(unit, replace(device, user_rates=rates), timer, on_refusal)
    return found


def checked(name: str, rate: float, device: DeviceInfo, on_refusal: Callable[[str], object]) -> float:
    """*rate* if the unit can do that, else what *device* had before. 0 or less: no time was measured."""
    most, before = device.most(name), float(getattr(device.rates, name))
    if rate <= 0:
        wrong = "more work took no longer, so others disturbed the measurement"
    elif most is not None and rate > most:
        wrong = (
            f"{rate:.3g} multiply-adds a second were measured, but {device.units} compute units at"
            f" {device.max_clock_mhz} MHz do {most:.3g} at most; the driver reports too low a clock, or"
            f" others disturbed the measurement"
        )
    else:
        return rate
    on_refusal(f"{name}: {wrong}. {before:.3g} stays.")
    return before


def solved(change: Callable[[float], float], seconds: float) -> float:
    """The rate at which *change*, the difference of two estimates by rate, is *seconds*, which are over 0."""
    alone = _SLOWEST * change(_SLOWEST) / seconds
    if change(_FASTEST) >= seconds:
        return alone
    low, high = alone / _NEAR, _FASTEST
    while high > low * (1 + 1e-6):
        middle = sqrt(low * high)
        low, high = (middle, high) if change(middle) > seconds else (low, middle)
    return low if change(_NEAR * low) < seconds / sqrt(_NEAR) else alone


def _of(unit: Unit, device: DeviceInfo, timer: Timer, on_refusal: Callable[[str], object]) -> float:
    failures = []
    for family, config, pair in _ways(unit, device):
        try:
            seconds = timer(family.name, config, pair)
        except (PyclmmError, cl.Error) as error:
            failures.append(f"{family.name}: {in_short(error)}")
            continue
        change = partial(_change, unit, device, family, config, pair)
        rate = solved(change, seconds) if seconds > 0 else 0.0
        return checked(unit.rate, rate, device, on_refusal)
    if unit.matrix or not failures:
        return 0.0
    before = float(getattr(device.rates, unit.rate))
    on_refusal(f"{unit.rate}: no kernel ran ({'; '.join(failures)}). {before:.3g} stays.")
    return before


def _change(
    unit: Unit, device: DeviceInfo, family: Kernel, config: TileConfig, pair: Pair, rate: float
) -> float:
    """The seconds that the second product of *pair* is estimated to take more at that *rate* of the unit."""
    own = replace(device, user_rates=device.rates.with_measured({unit.rate: rate}, ""))
    short, long = (family.estimate(one, config, own) for one in pair)
    return long - short


def _ways(unit: Unit, device: DeviceInfo) -> Iterator[tuple[Kernel, TileConfig, Pair]]:
    """The families on *unit*, the fastest by its estimate first, each with its best configuration."""
    for side in _SIDES:
        short, long = (
            problem_of(side, side, k, np.dtype(unit.dtype), "NT", unit.precision)
            for k in (side // 2, 2 * side)
        )
        if device.missing_type(long.types):
            return
        ways = sorted(_offers(unit, device, short, long), key=lambda one: one[0])
        room = min(device.max_mem_alloc_size, device.global_mem_size // _MEMORY_PART)
        if side == _SIDES[-1] or (ways and ways[0][0] <= _LONGEST and long.nbytes <= room):
            break
    for seconds, family, config in ways:
        if seconds <= _FALLBACK * ways[0][0]:
            yield family, config, (short, long)


def _offers(
    unit: Unit, device: DeviceInfo, short: GemmProblem, long: GemmProblem
) -> Iterator[tuple[float, Kernel, TileConfig]]:
    """The best configuration of each family for the long product that is one for the short product too."""
    for family in (k for k in KERNELS if unit.suits(k, long)):
        found = offer(family, long, device)
        if isinstance(found, str) or family.refuses(short, device):
            continue
        for seconds, config in found:
            if not family.violations(short, config, device):
                yield seconds, family, config
                break
