"""`pyclmm road`: every kernel from the triple loop to the matrix unit on one device, each against its limit.

A kernel runs at the asked size if a call is short there, else at the largest half, quarter, ... of it where
it is. Its limit is the roofline (kernels/traffic.py) from rates that were measured on the same device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyopencl as cl

from ..errors import ArgumentError
from ..kernels import KERNELS, Kernel, kernel_named
from ..kernels.device import DeviceInfo
from ..kernels.matrix_unit import MATRIX_UNITS
from ..kernels.rates import Rates, as_numbers
from ..kernels.traffic import traffic
from ..opencl.devices import device_info, find_device
from ..opencl.queues import new_queue
from ..problem.canonical import problem_of
from ..problem.gemm import GemmProblem
from ..problem.literals import Precision
from ..selection.select import refusal
from . import output, own_kernel, plots, probes, report
from .bench import INTERRUPTED, Others, Point, Row, Track
from .own_kernel import OwnAttempt
from .terminal import OnStage, Screen, Stage, TextTable, significant
from .timing import Size, Terms, check_memory

# In the order of the steps. A kernel is put on the road by its name here and its `shared_tile`.
KERNELS_OF_THE_ROAD = (
    "sequential", "single_group", "naive", "flat", "tiled", "strip", "block", "vector", "double_buffer",
    "register", "packed", *(name for unit in MATRIX_UNITS.values() for name in unit.road),
)  # fmt: skip
# What a kernel multiplies: the first of these that it can. Matrix units need 16 bits, or TF32.
_TYPES: tuple[tuple[str, Precision], ...] = (
    ("float32", "highest"), ("float16", "highest"), ("float32", "medium"),
)  # fmt: skip
_CALL = 0.25  # seconds: a kernel that takes longer for a call runs at a smaller size
_TERMS = Terms(arrays=True, rounds=5, limit=0.4)  # a slow kernel has fewer samples
_LEAST = 16  # the shortest side
_ON_CPU, _ON_OTHERS = 512, 2048  # side of the matrices, if none is asked for
_HEAD = ("kernel", "N", "type", "ops/byte", "GFLOP/s", "step", "limit", "of it", "by")
_FEW = 3  # samples; a line names the kernels that have fewer
# What is wrong with a limit that a kernel passes, by what sets it.
_PASSED = {
    "arithmetic": "the multiply-adds were measured too low, beside other work; repeat with nothing else busy",
    "cache": "it counts each load as the last cache's, but nearer caches served what work-items share",
    "memory": "it counts each load as the memory's, but caches served what work-items share",
}


@dataclass
class Road:
    """What a walk found. ``rates``: of the device; None before they are measured. ``absent``: kernel -> why
    it cannot run here. ``failed``: kernel -> what went wrong as it was built or run.
    """

    side: int
    rates: Rates | None = None
    points: list[Point] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    others: Others = field(default_factory=Others)

    def add(self, kernel: Kernel, problem: GemmProblem, row: Row, device: DeviceInfo) -> None:
        """Add what *row* says of *kernel*: its times, or why there are none."""
        if row.samples and row.config is not None:
            loads = traffic(kernel, problem, row.config, device)
            self.points.append(Point(kernel, problem, row, loads))
        elif row.reason != INTERRUPTED:
            self.failed[kernel.name] = row.reason or "it gave no result"

    def gains(self) -> list[float | None]:
        """The rate of each point over the one before it; None for the first."""
        rates = [point.rate for point in self.points]
        return [None, *(rate / before for before, rate in pairwise(rates))][: len(rates)]

    @property
    def wrong(self) -> list[str]:
        """The kernels with wrong results."""
        return [point.kernel.name for point in self.points if point.row.correct is False]

    def passing(self, by: str) -> list[str]:
        """The kernels that are faster than their limit, of those for which *by* sets it."""
        limits = [(p, p.limit(self.rates)) for p in self.points if self.rates]
        return [p.kernel.name for p, own in limits if own.by == by and p.rate > own.rate]


def walk(queue: cl.CommandQueue, road: Road, on_stage: OnStage, names: Sequence[str] | None = None) -> None:
    """Measure the device of *queue* and run the kernels *names* on it, or all; add what is found to *road*.
    *queue* needs profiling. Ctrl-C raises KeyboardInterrupt; what was measured until then is in *road*.
    """
    road.rates = _measured(queue, on_stage)
    names = KERNELS_OF_THE_ROAD if names is None else names
    for number, name in enumerate(names):
        on_stage(Stage(name, number, len(names)))
        _take(queue, kernel_named(name), road)
    if road.passing("arithmetic"):  # the rates were measured on a busy machine
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


def _take(queue: cl.CommandQueue, kernel: Kernel, road: Road) -> None:
    """Measure *kernel* with the first types that it can multiply here, or note why it cannot."""
    device = device_info(queue.device)
    halves = [side for shift in range(1, 32) if (side := road.side >> shift) >= _LEAST]
    sizes = [Size(side, side, side) for side in (road.side, *halves)]
    reasons: list[str] = []
    for dtype, precision in _TYPES:
        answers = [refusal(kernel, _problem(size, dtype, precision), device) for size in sizes]
        able = [size for size, answer in zip(sizes, answers, strict=True) if answer is None]
        if able:
            track = Track(queue, [kernel.name], replace(_TERMS, precision=precision))
            track.others = road.others
            rung = track.climb(able, np.dtype(dtype), _CALL)  # at the largest size where a call is short
            road.add(kernel, _problem(rung.size, dtype, precision), rung.rows[0], device)
            if track.interrupted:
                raise KeyboardInterrupt
            return
        reasons += filter(None, answers)
    road.absent[kernel.name] = reasons[0]


def _problem(size: Size, dtype: str, precision: Precision) -> GemmProblem:
    return problem_of(size.m, size.n, size.k, np.dtype(dtype), "NN", precision)


@click.command("road")
@click.argument("file", required=False, type=output.file_type)
@click.option(
    "--start", type=click.IntRange(1, own_kernel.LAST), help="Write a file to change: that step (1 to 10)."
)
@click.option(
    "--size", "side", type=output.length_type, help=f"M = N = K [{_ON_CPU} on CPUs, else {_ON_OTHERS}]."
)
@output.device_option
@output.json_option()
@output.plot_option
def road_command(
    file: Path | None,
    start: int | None,
    side: int | None,
    device: str | None,
    json_target: str | None,
    plot_file: Path | None,
) -> None:
    """Run each kernel from the triple loop to the matrix unit on this device: what each step gains, and how
    far it is from its own limit.

    The limit is the device's rate of multiply-adds, or what its last-level cache (its memory, if the operands
    are larger) can deliver for the bytes that the kernel's work-items load, if that is less. Both rates are
    measured first. Every product is checked. Ctrl-C ends the measuring and shows what was measured.

    With FILE: check your own kernel in it by every law, and time it beside its neighbours. --start 5 writes
    such a file, step5.cl or FILE, for the exercise of page 5; one that is there stays as it is.
    """
    out = output.Output("road", json_target)
    if start is not None:
        output.Output("road", None).screen.lines(own_kernel.start(start, file or Path(f"step{start}.cl")))
        return
    if file is not None and file.exists() and file.name in {kernel.name for kernel in KERNELS}:
        raise ArgumentError(f"{file}: pyclmm's own kernel has this name; call the file {file.name}.cl")
    if file is not None and file.exists() and not file.is_file():  # it is read twice
        raise ArgumentError(f"{file}: it is no regular file")
    output.check_plot(plot_file)
    chosen = find_device(device)
    own = device_info(chosen)
    road = Road(side or (_ON_CPU if own.is_cpu else _ON_OTHERS))
    check_memory(Size(*(road.side,) * 3), np.dtype(np.float32), own, _TERMS)
    mine = None if file is None else OwnAttempt(file, own)
    with out.measuring() as on_stage:
        (walk if mine is None else partial(walk_own, mine))(new_queue(chosen, profiling=True), road, on_stage)
    header, rates = report.header_json(own), road.rates
    out.save(header | _as_json(road) | ({} if mine is None else mine.as_json()))
    if mine is not None:
        mine.show(out.screen)
    if (busy := road.others.warning()) is not None:
        out.warn(busy)
    if rates is not None and road.points:
        device_line = report.device_line(own)
        title = f"The road, N = {road.side}: {device_line}, {header['date'][:10]}"
        out.draw(plot_file, lambda path: plots.under_roofs(road.points, rates, road.side, title, path))
        _show(out.screen, road, rates, device_line)
        out.screen.lines(*([] if mine is None else _verdict(mine, road, rates)))
    for name, reason in road.failed.items():
        out.warn(f"WARNING: {name} {'failed' if mine is None else 'is not timed'}: {reason}")
    if mine is not None and mine.failure is not None:
        out.finish(f"{file} did not pass", output.WRONG_RESULT if mine.wrong else output.FAILED)
    if road.wrong:
        out.finish(f"wrong results from {', '.join(road.wrong)}", output.WRONG_RESULT)
    found = road.points or (mine and mine.laws)
    out.finish(None if road.points else "no kernel of the road could run here", output.FAILED, found)


def _show(screen: Screen, road: Road, rates: Rates, device_line: str) -> None:
    screen.lines(device_line, *_heading(rates), "")
    rows = [_cells(point, gain, rates) for point, gain in zip(road.points, road.gains(), strict=True)]
    screen.table(TextTable(_HEAD, tuple(rows), text=("kernel", "type", "by")))
    screen.lines("", *_notes(road))


def walk_own(mine: OwnAttempt, queue: cl.CommandQueue, road: Road, on_stage: OnStage) -> None:
    """Check a reader's kernel, time it and its neighbours only, and measure the device as :func:`walk`."""
    place = KERNELS_OF_THE_ROAD.index(mine.step.name)
    before, after = KERNELS_OF_THE_ROAD[max(0, place - 1) : place + 1], KERNELS_OF_THE_ROAD[place + 1 :][:1]
    found = mine.check((*before, *after), road.side, on_stage)
    if mine.failure is not None:
        return
    road.others = mine.others
    for name in (*before, mine.own.name, *after):
        kernel, problem, row = found[name]
        road.side = problem.n
        road.add(kernel, problem, row, mine.device)
    walk(queue, road, on_stage, names=())


def _verdict(mine: OwnAttempt, road: Road, rates: Rates) -> list[str]:
    """How fast a reader's kernel is beside its step, and how near to its limit."""
    points = {point.kernel.name: point for point in road.points}
    if mine.own.name not in points:
        return []
    own, step = points[mine.own.name], points.get(mine.step.name)
    words, limit = f"{mine.own.name}: {significant(own.rate / 1e9)} GFLOP/s", own.limit(rates)
    if step is not None:
        same = ", which is within their scatter" if own.row.overlaps(step.row) else ""
        words += f", {significant(own.rate / step.rate)} times {step.kernel.name}{same}"
    share = "faster than" if own.rate > limit.rate else f"{_percent(own.rate / limit.rate)} of"
    return [f"{words}; {share} its limit, set by {limit.by}, if it loads as much as {mine.step.name}"]


def _heading(rates: Rates) -> list[str]:
    billions = {name: significant(value / 1e9) for name, value in as_numbers(rates).items()}
    return [
        f"measured: memory {billions['memory']} GB/s, "
        f"cache {billions['cache']} GB/s up to {rates.cache_size / 1e6:.3g} MB, "
        f"float32 {significant(2 * rates.float32 / 1e9)} GFLOP/s"
        + (f", 16-bit matrix units {significant(2 * rates.matrix16 / 1e9)}" if rates.matrix16 else ""),
        "step: times faster than the row above. limit: the most GFLOP/s that these rates allow for the "
        "bytes that its work-items load (ops/byte) and for its multiply-adds",
    ]


def _cells(point: Point, gain: float | None, rates: Rates) -> tuple[str, ...]:
    problem, limit = point.problem, point.limit(rates)
    word = "" if problem.precision == "highest" else f' "{problem.precision}"'
    share = "passed" if point.rate > limit.rate else _percent(point.rate / limit.rate)
    intensity = significant(point.traffic.intensity)
    about = point.kernel.name, str(problem.n), problem.a_type + word, intensity
    step = "-" if gain is None else f"{significant(gain)}x"
    return *about, significant(point.rate / 1e9), step, significant(limit.rate / 1e9), share, limit.by


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share < 1 else f"{100 * share:.0f}%"


def _notes(road: Road) -> list[str]:
    """What the table cannot say: wrong limits, steps back, who ran smaller or seldom or cannot run."""
    points, passing = road.points, {wrong: road.passing(by) for by, wrong in _PASSED.items()}
    notes = [f"limit passed by {', '.join(names)}: {wrong}" for wrong, names in passing.items() if names]
    smaller = [point.kernel.name for point in points if point.problem.n < road.side]
    lists = {
        f"a step back here (reasons: {report.REASONS})": report.steps_back([point.row for point in points]),
        f"too slow at {road.side}, or made for less, so at a smaller N": smaller,
        f"slow, so fewer than {_FEW} samples": [p.kernel.name for p in points if len(p.row.samples) < _FEW],
    }
    notes += [f"{words}: {', '.join(names)}" for words, names in lists.items() if names]
    if road.absent:
        notes.append(f"cannot run here: {', '.join(road.absent)} (`pyclmm info --reasons` says why)")
    return [_checked(road), *notes]


def _checked(road: Road) -> str:
    if road.wrong:
        return f"WRONG results: {', '.join(road.wrong)}"
    shares = [(p.row.error_ratio or 0.0) / p.row.error_limit for p in road.points if p.row.error_limit]
    return f"every result was checked; errors are at most {_percent(max(shares, default=0.0))} of their bound"


def _as_json(road: Road) -> dict[str, Any]:
    rates, gains = road.rates, road.gains()
    points = () if rates is None else zip(road.points, gains, strict=True)
    found = [_point_json(point, gain, rates) for point, gain in points if rates is not None]
    measured = {"side": road.side, "rates": None if rates is None else as_numbers(rates), "points": found}
    missing = {"absent": road.absent, "failed": road.failed}
    return measured | missing | {"others_processors": road.others.processors}


def _point_json(point: Point, gain: float | None, rates: Rates) -> dict[str, Any]:
    limit, config = point.limit(rates), point.row.config
    return {
        "kernel": point.kernel.name, "n": point.problem.n, "dtype": point.problem.a_type,
        "precision": point.problem.precision, "config": None if config is None else config.as_dict(),
        "walls_s": point.row.walls, "median_s": point.row.seconds,
        "operations": point.traffic.operations, "nbytes": point.traffic.nbytes,
        "operations_per_s": point.rate, "gain": gain,
        "limit_per_s": limit.rate, "limited_by": limit.by, "correct": point.row.correct,
    }  # fmt: skip
