"""Measuring kernels side by side: interleaved rounds, medians, every result checked.

A kernel's *time* is wall time, by the one clock of all contestants (see timing.py): speeds and speed-ups
follow from it. Its device time runs from the start of a product's first launch to the end of its last, by
the driver's profiling events; it is shown beside.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from ..checks.known_answers import operands_error
from ..errors import PyclmmError, in_short
from ..kernels import KERNELS, Kernel, kernel_named
from ..kernels.config import TileConfig
from ..kernels.rates import Rates
from ..kernels.traffic import Limit, Traffic, limit
from ..opencl.devices import device_info
from ..problem.canonical import problem_of
from ..problem.dtypes import dtype_of
from ..problem.gemm import GemmProblem
from ..selection import select
from .terminal import OnStage, Stage, unheard
from .timing import (
    NUMPY,
    PAUSE,
    SLICE,
    THREADED,
    Board,
    Contestant,
    Expected,
    Sample,
    Size,
    Terms,
    layout_of,
    random_pair,
    size_of,
)

Array = np.ndarray[Any, np.dtype[Any]]

SCATTER = 1.5  # slowest over fastest sample; above this the median says little
INTERRUPTED = "interrupted before it was measured"
_FIRST_PROBE = 10**6  # multiply-adds: the smallest product that shows how fast a kernel is
BUSY = 0.25  # processors, chosen: another program that computes uses about one
_SHORTEST = 0.5  # seconds: the system counts in steps of 1/100 s
STAT = Path("/proc/stat")
_IDLE = (3, 4, 8, 9)  # columns of the line "cpu": idle, iowait; guests count twice, as user and nice too


@dataclass(frozen=True)
class Row:
    """One kernel at one size: seconds, or the reason why there are none. ``error_ratio`` must be under
    ``error_limit``. ``speedup`` is over the :func:`baseline`; ``extrapolated``: of a smaller product.
    ``chosen``: what "auto" took. ``refused``: the kernel cannot compute this product here.
    """

    kernel: str
    config: TileConfig | None = None
    samples: tuple[Sample, ...] = ()
    flops: int = 0
    error_ratio: float | None = None
    error_limit: float | None = None
    reason: str | None = None
    too_slow: bool = False
    refused: bool = False
    speedup: float | None = None
    extrapolated: bool = False
    chosen: str | None = None

    @property
    def walls(self) -> list[float]:
        """Wall time of each sample, the least first."""
        return sorted(sample.wall for sample in self.samples)

    @property
    def seconds(self) -> float | None:
        """Median wall time."""
        return statistics.median(self.walls) if self.samples else None

    @property
    def device(self) -> float | None:
        """Median device time; None if the driver reports none."""
        times = [s.device for s in self.samples if s.device is not None]
        return statistics.median(times) if times else None

    @property
    def scatter(self) -> float:
        """The slowest sample's wall time over the fastest's; 1 where there are none."""
        return self.walls[-1] / self.walls[0] if self.samples else 1.0

    def overlaps(self, other: Row) -> bool:
        """Whether the slowest sample of each is no faster than the fastest of the other."""
        one, two = self.walls, other.walls
        return bool(one and two) and one[0] <= two[-1] and two[0] <= one[-1]

    @property
    def gflops(self) -> float | None:
        """10^9 operations a second of median wall time."""
        return self.flops / self.seconds / 1e9 if self.seconds else None

    @property
    def correct(self) -> bool | None:
        """Whether the result is within the bound; None where there is no result."""
        if self.error_ratio is None or self.error_limit is None:
            return None
        return self.error_ratio < self.error_limit


@dataclass(frozen=True)
class Point:
    """A kernel under its limit: its times and its verdict, and what it loads and computes."""

    kernel: Kernel
    problem: GemmProblem
    row: Row
    traffic: Traffic

    @property
    def rate(self) -> float:
        """Operations a second, from the median wall time. A point has samples."""
        return self.row.flops / statistics.median(self.row.walls)

    def limit(self, rates: Rates) -> Limit:
        """The most that *rates* allow for what it loads and computes."""
        return limit(self.kernel, self.problem, self.traffic, rates)


@dataclass(frozen=True)
class Rung:
    """All kernels at one size. ``checked_rows``: how many rows of each product were checked."""

    size: Size
    dtype: str
    rows: tuple[Row, ...]
    checked_rows: int = 0
    layout: str = "NN"
    terms: Terms = field(default_factory=Terms)

    @property
    def title(self) -> str:
        """The product: size, dtype, layout, and the precision if it is not the default."""
        word = "" if self.terms.precision == "highest" else f' "{self.terms.precision}"'
        return f"{self.size} {self.dtype} {self.layout}{word}"

    @property
    def baseline(self) -> str:
        """The kernel that the speed-ups are over."""
        return baseline([row.kernel for row in self.rows])

    def row(self, kernel: str) -> Row:
        return next(row for row in self.rows if row.kernel == kernel)

    @property
    def wrong(self) -> list[Row]:
        """The kernels with wrong results."""
        return [row for row in self.rows if row.correct is False]

    @property
    def scattered(self) -> list[Row]:
        """The kernels whose samples differ by more than SCATTER."""
        return [row for row in self.rows if row.scatter > SCATTER]


def kernel_names(asked: Sequence[str]) -> list[str]:
    """The kernels to run: those *asked* for, or all. Raises ArgumentError for a name that no kernel has."""
    names = list(dict.fromkeys(asked)) or [kernel.name for kernel in KERNELS]
    for name in names:
        if name != "auto":
            kernel_named(name)
    return names


def baseline(kernels: Sequence[str]) -> str:
    """The one of *kernels* that speed-ups are over: `sequential`, or the first where that does not run."""
    return "sequential" if "sequential" in kernels else kernels[0]


@dataclass
class Others:
    """Processor time of other processes, summed over the times that are :meth:`watched`: what Linux counts as
    busy, less what this process used. (A load average counts this process too.) Elsewhere nothing is known.
    """

    seconds: float = 0.0
    busy: float = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the machine in this block."""
        start = _reading()
        try:
            yield
        finally:
            end = _reading()
            if start is not None and end is not None:
                self.seconds += end[0] - start[0]
                self.busy += end[1] - start[1]

    @property
    def processors(self) -> float | None:
        """How many processors others kept busy on average; None if not known, or the time was too short."""
        if self.seconds < _SHORTEST:
            return None
        return max(0.0, self.busy / self.seconds)

    def warning(self) -> str | None:
        """A line for a busy machine, else None."""
        used = self.processors
        if used is None or used <= BUSY:
            return None
        return (
            f"WARNING: the machine is busy: other processes used {used:.2g} of its {os.cpu_count()} "
            "processors while this was measured. Repeat with nothing else running."
        )


def _reading() -> tuple[float, float] | None:
    """The time, and the processor seconds that others used until now; None where the system is silent."""
    try:
        columns = STAT.read_text().split("\n", 1)[0].split()[1:]
        ticks = sum(int(count) for place, count in enumerate(columns) if place not in _IDLE)
        busy = ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
    used = os.times()
    return time.monotonic(), busy - (used.user + used.system + used.children_user + used.children_system)


class Track:
    """One device, the kernels that run on it, and how fast each was so far."""

    def __init__(self, queue: cl.CommandQueue, kernels: Sequence[str], terms: Terms | None = None) -> None:
        """*queue* needs profiling."""
        self.queue, self.kernels, self.terms = queue, list(kernels), terms or Terms()
        self.device = device_info(queue.device)
        self.others = Others()
        self.interrupted = False
        self.on_stage: OnStage = unheard  # called before each kernel that runs
        self._pace: dict[str, tuple[int, float]] = {}  # work, and its wall time in seconds

    def expected(self, kernel: str, work: int) -> float | None:
        """Seconds of wall time that *work* should take at the last measured speed; None: not measured yet."""
        if kernel not in self._pace:
            return None
        seen, wall = self._pace[kernel]
        return wall / seen * work

    def forecast(self, size: Size) -> float | None:
        """Seconds that a race at *size* should take at the speeds measured so far; None before the first."""
        known = [self.expected(name, size.work) for name in self.kernels]
        seconds = [s for s in known if s is not None and s <= self.terms.limit]
        if not any(s is not None for s in known):
            return None
        runs = self.terms.rounds + 1
        return sum(min(self.terms.limit + s, runs * max(s, SLICE)) for s in seconds)

    def probe(self, size: Size, dtype: np.dtype[Any], layout: str = "NN") -> None:
        """Run smaller products first, to find out which kernels are too slow for *size*."""
        work: float = _FIRST_PROBE
        while work * 5 < size.work and not self.interrupted:
            self.race(*random_pair(size.shrunk(work), dtype, layout=layout), rounds=1)
            work *= 10

    def climb(self, sizes: Sequence[Size], dtype: np.dtype[Any], longest: float) -> Rung:
        """Race at the least of *sizes*, given largest first, and go on to the largest where a call of the
        first kernel is as short as *longest* seconds. Returns the last race in which that has samples.
        """
        rung = found = self.race(*random_pair(sizes[-1], dtype))
        while (size := self._longer(found, sizes, longest)) is not None:
            found = self.race(*random_pair(size, dtype))
            rung = found if found.rows[0].samples else rung
        return rung

    def _longer(self, found: Rung, sizes: Sequence[Size], longest: float) -> Size | None:
        """The largest of *sizes* over that of *found* where a call should be short, by the last run."""
        if self.interrupted or found.rows[0].correct is False:
            return None
        pace = {x: self.expected(self.kernels[0], x.work) for x in sizes if x.work > found.size.work}
        return next((x for x, seconds in pace.items() if seconds is not None and seconds <= longest), None)

    def race(self, a: Array, b: Array, rounds: int | None = None) -> Rung:
        """Run every kernel on ``a @ b``, matrices or stacks of as many, and NumPy where they are NumPy
        arrays. The row of a kernel that cannot run, or would exceed the limit, has the reason. Ctrl-C ends
        the rounds: samples count, and ``interrupted`` is set. Raises DeviceMemoryError if the operands do not
        fit the device.
        """
        size, layout, terms = size_of(a, b), layout_of(a, b), self.terms
        problem = problem_of(size.m, size.n, size.k, a.dtype, layout, terms.precision, size.stack)
        names = self.kernels if terms.arrays else [*self.kernels, NUMPY]
        rows = {name: row for name in names if (row := self._refused(name, size, problem))}
        checked = 0
        if len(rows) < len(names):
            check = Expected(a, b, operands_error(problem))
            checked = len(check.rows)
            board = Board(self.queue, a, b, dtype_of(problem.out_type), terms)
            for entry in self._run([x for x in names if x not in rows], board, check, rows, rounds):
                rows[entry.name] = self._row(entry, problem, check, size)
        shown = [rows.get(name) or Row(name, reason=INTERRUPTED) for name in names]
        measured = tuple(self._with_speedups(shown, size))
        return Rung(size, a.dtype.name, measured, checked, layout, terms)

    def _refused(self, name: str, size: Size, problem: GemmProblem) -> Row | None:
        if name not in (NUMPY, "auto"):
            reason = select.refusal(kernel_named(name), problem, self.device)
            if reason is not None:
                return Row(name, reason=reason, refused=True)
        seconds = self.expected(name, size.work)
        if seconds is not None and seconds > self.terms.limit:
            reason = f"would take about {seconds:.3g} s, over the limit of {self.terms.limit:g} s"
            return Row(name, reason=reason, too_slow=True)
        return None

    def _run(
        self, names: list[str], board: Board, check: Expected, rows: dict[str, Row], rounds: int | None
    ) -> list[Contestant]:
        """The contestants with their samples. Kernels that cannot be built get their rows."""
        entries: list[Contestant] = []
        try:
            for name in names:
                if name != NUMPY:
                    self.on_stage(Stage(f"{name} at {check.size}: build"))
                try:
                    entries.append(Contestant(name, board))
                except (cl.Error, PyclmmError) as error:
                    rows[name] = Row(name, reason=in_short(error))
            self._rounds(entries, check, rounds or self.terms.rounds)
        except KeyboardInterrupt:
            self.interrupted = True
        return entries

    def _rounds(self, entries: list[Contestant], check: Expected, rounds: int) -> None:
        total = len(entries) * (rounds + 1)
        for number, entry in enumerate(entries):
            self.on_stage(Stage(f"{entry.name} at {check.size}: check", number, total))
            self._first(entry, check)
        with self.others.watched():
            for turn in range(1, rounds + 1):
                if check.size.work > THREADED and (turn == 1 or not self.terms.arrays):
                    time.sleep(PAUSE)  # NumPy came last: in the check, or in the round before
                for number, entry in enumerate(entries, turn * len(entries)):
                    if entry.failure is None and entry.spent < self.terms.limit:
                        words = f"{entry.name} at {check.size}: round {turn} of {rounds}"
                        self.on_stage(Stage(words, number, total))
                        entry.once()

    def _first(self, entry: Contestant, check: Expected) -> None:
        """The first run is checked. It may include a compilation, so its time counts only if it is long."""
        entry.board.spoil()
        entry.once()
        if entry.failure is None:
            entry.error_ratio = check.ratio(entry.result())
            if entry.spent < self.terms.limit / 2:
                entry.samples.clear()
                entry.spent = 0.0

    def _row(self, entry: Contestant, problem: GemmProblem, check: Expected, size: Size) -> Row:
        row = Row(entry.name, entry.config, chosen=entry.kernel if entry.name == "auto" else None)
        reason = entry.failure or (None if entry.samples else INTERRUPTED)
        if reason is not None:
            return replace(row, reason=reason)
        row = replace(row, samples=tuple(entry.samples), flops=problem.flops)
        row = replace(row, error_ratio=entry.error_ratio, error_limit=check.limit)
        if row.seconds is not None:
            self._pace[entry.name] = (size.work, row.seconds)
        return row

    def _with_speedups(self, rows: list[Row], size: Size) -> Iterator[Row]:
        name = baseline(self.kernels)
        own = next(row.seconds for row in rows if row.kernel == name)
        base = own if own is not None else self.expected(name, size.work)
        for row in rows:
            if row.seconds and base:
                yield replace(row, speedup=base / row.seconds, extrapolated=own is None)
            else:
                yield row
