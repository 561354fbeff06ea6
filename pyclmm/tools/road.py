"""The road: every kernel from the triple loop to the matrix unit on one device, each against its own limit.

A kernel runs at the asked size if a call is short there, else at the largest half, quarter, ... of it where
it is. Its limit is the roofline (kernels/traffic.py) from rates that were measured on the same device.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyopencl as cl

from ..kernels import Kernel, kernel_named
from ..kernels.matrix_unit import MATRIX_UNITS
from ..kernels.rates import Rates
from ..kernels.traffic import Limit, Traffic, limit, traffic
from ..opencl.devices import device_info
from ..problem.canonical import problem_of
from ..problem.gemm import GemmProblem
from ..problem.words import Precision
from ..selection.select import refusal
from . import probes
from .bench import Others, Row, Rules, Track
from .terminal import OnStage, Stage, unheard
from .timing import Size, Terms, random_pair

# In the order of the steps. A kernel is put on the road by its name here and its `shared_tile`.
KERNELS_OF_THE_ROAD = (
    "sequential", "single_group", "naive", "flat", "tiled", "strip", "block", "vector", "double_buffer",
    "register", "packed", *(name for unit in MATRIX_UNITS.values() for name in unit.road),
)  # fmt: skip
# What a kernel multiplies: the first of these that it can. Matrix units need 16 bits, or TF32.
_TYPES: tuple[tuple[str, Precision], ...] = (
    ("float32", "highest"),
    ("float16", "highest"),
    ("float32", "medium"),
)
_CALL = 0.25  # seconds: a kernel that takes longer for a call runs at a smaller size
_RULES = Rules(rounds=5, limit=0.4)  # a slow kernel has fewer samples
_LEAST = 16  # the shortest side


@dataclass(frozen=True)
class Point:
    """One kernel on the road: where it ran, its times and its verdict, and what it loads and computes."""

    kernel: Kernel
    size: Size
    problem: GemmProblem
    row: Row
    traffic: Traffic

    @property
    def dtype(self) -> str:
        return self.problem.a_type

    @property
    def rate(self) -> float:
        """Operations a second, from the median wall time. A point has samples."""
        return self.row.flops / statistics.median(self.row.walls)

    def limit(self, rates: Rates) -> Limit:
        """The most that *rates* allow for what it loads and computes."""
        return limit(self.kernel, self.problem, self.traffic, rates)


@dataclass
class Road:
    """What a walk found.

    ``rates``: of the device; None before they are measured. ``absent``: kernel -> why it cannot run here.
    ``failed``: kernel -> what went wrong as it was built or run.
    """

    side: int
    rates: Rates | None = None
    points: list[Point] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    others: Others = field(default_factory=Others)

    def gains(self) -> list[float | None]:
        """The rate of each point over the one before it; None for the first."""
        rates = [point.rate for point in self.points]
        return [None, *(rate / before for before, rate in pairwise(rates))][: len(rates)]

    @property
    def wrong(self) -> list[str]:
        """The kernels with wrong results."""
        return [point.kernel.name for point in self.points if point.row.correct is False]

    @property
    def impossible(self) -> bool:
        """Whether a kernel multiplies faster than the rates say: they were measured on a busy machine."""
        limits = [(p.rate, p.limit(self.rates)) for p in self.points if self.rates]
        return any(rate > own.rate for rate, own in limits if own.by == "arithmetic")


def walk(queue: cl.CommandQueue, road: Road, on_stage: OnStage = unheard) -> None:
    """Measure the device of *queue* and run every kernel of the road on it; add what is found to *road*.

    *queue* needs profiling. Ctrl-C raises KeyboardInterrupt; what was measured until then is in *road*.
    """
    road.rates = _measured(queue, on_stage)
    for number, name in enumerate(KERNELS_OF_THE_ROAD):
        on_stage(Stage(name, number, len(KERNELS_OF_THE_ROAD)))
        _take(queue, kernel_named(name), road)
    if road.impossible:
        road.rates = faster(road.rates, _measured(queue, on_stage))


def _measured(queue: cl.CommandQueue, on_stage: OnStage) -> Rates:
    """The rates of the device, measured now. They are not kept: `pyclmm tune --device` does that."""
    found: dict[str, float] = {}
    for group in probes.measure(queue.device, on_stage):
        found |= group
    return device_info(queue.device).rates.with_measured(found, "measured here")


def faster(one: Rates, other: Rates) -> Rates:
    """The higher of two measured rates, of each that gives a limit: other work only makes them less."""
    names = ("memory", "cache", "cache_size", "float32", "matrix16", "matrix32")
    highest = {name: max(getattr(one, name), getattr(other, name)) for name in names}
    return one.with_measured(highest, one.source)


def _sizes(side: int) -> Iterator[Size]:
    """Cubes of the asked side, its half, its quarter, ..., the largest first."""
    yield Size(side, side, side)
    while (side := side // 2) >= _LEAST:
        yield Size(side, side, side)


def _take(queue: cl.CommandQueue, kernel: Kernel, road: Road) -> None:
    """Measure *kernel* with the first types that it can multiply here, or note why it cannot."""
    device, sizes = device_info(queue.device), list(_sizes(road.side))
    reasons: list[str] = []
    for dtype, precision in _TYPES:
        answers = [refusal(kernel, _problem(size, dtype, precision), device) for size in sizes]
        able = [size for size, answer in zip(sizes, answers, strict=True) if answer is None]
        if able:
            track = Track(queue, [kernel.name], _RULES, terms=Terms(precision, arrays=True))
            track.others = road.others
            _measure(track, kernel, dtype, able, road)
            return
        reasons += filter(None, answers)
    road.absent[kernel.name] = reasons[0]


def _problem(size: Size, dtype: str, precision: Precision) -> GemmProblem:
    return problem_of(size.m, size.n, size.k, np.dtype(dtype), "NN", precision)


def _measure(track: Track, kernel: Kernel, dtype: str, sizes: list[Size], road: Road) -> None:
    """Climb to the largest of *sizes*, given largest first, where a call is short, and measure there."""
    size: Size | None = sizes[-1]
    here, row = sizes[-1], Row(kernel.name)
    while size is not None:
        found = track.race(*random_pair(size, np.dtype(dtype))).rows[0]
        if found.samples or not row.samples:
            here, row = size, found
        size = None if row.correct is False else _longer(track, size, sizes)
    if row.samples and row.config is not None:
        problem = _problem(here, dtype, track.terms.precision)
        own = traffic(kernel, problem, row.config, track.device)
        road.points.append(Point(kernel, here, problem, row, own))
    elif not track.interrupted:
        road.failed[kernel.name] = row.reason or "it gave no result"
    if track.interrupted:
        raise KeyboardInterrupt


def _longer(track: Track, size: Size, sizes: list[Size]) -> Size | None:
    """The largest of *sizes* over *size* whose calls should be short, by the last run; None: none."""
    for other in () if track.interrupted else sizes:
        seconds = track.expected(track.kernels[0], other.work)
        if other.work > size.work and seconds is not None and seconds <= _CALL:
            return other
    return None
