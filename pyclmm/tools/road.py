"""The road: every kernel from the triple loop to the matrix unit on one device, each against its own limit.

A kernel runs at the asked size if a call is short there, else at the largest half, quarter, ... of it where
it is. Its limit is the roofline (kernels/traffic.py) from rates that were measured on the same device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyopencl as cl

from ..kernels import Kernel, kernel_named
from ..kernels.device import DeviceInfo
from ..kernels.rates import Rates
from ..kernels.traffic import Limit, Traffic, limit, traffic
from ..opencl.devices import device_info
from ..problem.canonical import problem_of
from ..problem.gemm import GemmProblem
from ..problem.words import Precision
from ..selection.select import refusal
from .bench import Row, Rules, Rung, Track
from .busy import Others
from .contest import Size, Terms, random_pair
from .steps import OnStep, Step, unheard

KERNELS_OF_THE_ROAD = (
    "sequential", "single_group", "naive", "flat", "tiled", "strip", "block", "vector", "double_buffer",
    "register", "packed", "mma", "wgmma", "mfma", "wmma", "dpas",
)  # fmt: skip
# What a kernel multiplies: float32, or the first of these that it can. Matrix units need 16 bits, or TF32.
_TYPES: tuple[tuple[str, Precision], ...] = (
    ("float32", "highest"),
    ("float16", "highest"),
    ("float32", "medium"),
)
_CALL = 0.12  # seconds: a kernel that takes longer for a call runs at a smaller size
_RULES = Rules(rounds=5, limit=0.3)  # a slow kernel has fewer samples
_LEAST = 16  # the shortest side


@dataclass(frozen=True)
class Point:
    """One kernel on the road. ``row``: its times, and its verdict. ``size``: where it ran."""

    kernel: str
    size: Size
    dtype: str
    precision: str
    row: Row
    traffic: Traffic
    limit: Limit

    @property
    def rate(self) -> float | None:
        """Operations a second, from the median wall time."""
        return None if self.row.seconds is None else self.row.flops / self.row.seconds

    @property
    def share(self) -> float | None:
        """The part of its own limit that it reaches."""
        return None if self.rate is None else self.rate / self.limit.rate


@dataclass
class Road:
    """What a walk found. ``absent``: kernel -> why it cannot run here."""

    side: int
    points: list[Point] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    others: Others = field(default_factory=Others)

    def gains(self) -> list[float | None]:
        """The rate of each point over the one before it; None for the first."""
        found: list[float | None] = []
        before: float | None = None
        for point in self.points:
            found.append(point.rate / before if point.rate and before else None)
            before = point.rate or before
        return found

    @property
    def wrong(self) -> list[str]:
        """The kernels with wrong results."""
        return [point.kernel for point in self.points if point.row.correct is False]


def walk(queue: cl.CommandQueue, road: Road, rates: Rates, on_step: OnStep = unheard) -> None:
    """Run every kernel of the road on *queue*, which needs profiling, and add what it does to *road*.

    Ctrl-C raises KeyboardInterrupt; what was measured until then is in *road*.
    """
    device = device_info(queue.device)
    total = len(KERNELS_OF_THE_ROAD)
    for number, name in enumerate(KERNELS_OF_THE_ROAD):
        on_step(Step(name, number, total))
        kernel = kernel_named(name)
        reasons = []
        for dtype, precision in _TYPES:
            sizes = [
                size for size in _sizes(road.side) if not _refusal(kernel, size, dtype, precision, device)
            ]
            if sizes:
                _measure(_Runner(queue, kernel, dtype, precision, road.others), sizes, road, rates)
                break
            reasons.append(_refusal(kernel, Size(*(road.side,) * 3), dtype, precision, device))
        else:
            road.absent[name] = reasons[0] or "it can compute no size of the road"


def _sizes(side: int) -> Iterator[Size]:
    """Cubes of the asked side, its half, its quarter, ..., the largest first."""
    yield Size(side, side, side)
    while (side := side // 2) >= _LEAST:
        yield Size(side, side, side)


def _problem(size: Size, dtype: str, precision: Precision) -> GemmProblem:
    return problem_of(size.m, size.n, size.k, np.dtype(dtype), "NN", precision)


def _refusal(kernel: Kernel, size: Size, dtype: str, precision: Precision, device: DeviceInfo) -> str | None:
    return refusal(kernel, _problem(size, dtype, precision), device)


class _Runner:
    """One kernel with its operands' type."""

    def __init__(
        self, queue: cl.CommandQueue, kernel: Kernel, dtype: str, precision: Precision, others: Others
    ) -> None:
        self.kernel, self.dtype, self.precision = kernel, dtype, precision
        self.track = Track(queue, [kernel.name], _RULES, terms=Terms(precision, arrays=True))
        self.track.others = others

    def race(self, size: Size, rounds: int) -> Rung:
        return self.track.race(*random_pair(size, np.dtype(self.dtype)), rounds=rounds)

    def longer(self, size: Size, sizes: list[Size]) -> Size | None:
        """The largest of *sizes* over *size* whose calls should be short, by the last run; None: none."""
        for other in sizes:
            seconds = self.track.expected(self.kernel.name, other.work)
            if other.work > size.work and seconds is not None and seconds <= _CALL:
                return other
        return None

    def point(self, size: Size, row: Row, rates: Rates) -> Point | None:
        if row.config is None:
            return None
        problem = _problem(size, self.dtype, self.precision)
        own = traffic(self.kernel, problem, row.config, self.track.device)
        bound = limit(self.kernel, problem, own, rates)
        return Point(self.kernel.name, size, self.dtype, self.precision, row, own, bound)


def _measure(runner: _Runner, sizes: list[Size], road: Road, rates: Rates) -> None:
    """Climb to the largest of *sizes* where calls are short, and measure there."""
    size = sizes[-1]
    rung = runner.race(size, 1)
    while not runner.track.interrupted and (larger := runner.longer(size, sizes)) is not None:
        size, rung = larger, runner.race(larger, 1)
    if not runner.track.interrupted:
        rung = runner.race(size, _RULES.rounds)
    row = rung.rows[0]
    point = runner.point(size, row, rates) if row.samples else None
    if point is not None:
        road.points.append(point)
    elif not runner.track.interrupted:
        road.absent[runner.kernel.name] = row.reason or "it gave no result"
    if runner.track.interrupted:
        raise KeyboardInterrupt
