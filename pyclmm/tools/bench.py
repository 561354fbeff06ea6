"""Measuring kernels side by side: interleaved rounds, medians, every result checked.

Device time is from the start of a product's first launch to the end of its last, by the driver's
profiling events. Wall time is the call and the wait for its end, on operands that are already on
the device; NumPy has wall time only. A kernel's *time* is the device time where there is one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyopencl as cl

from ..errors import PyclmmError, in_short
from ..kernels import KERNELS, kernel_named
from ..kernels.config import TileConfig
from ..opencl.devices import device_info
from ..problem.canonical import problem_of
from ..problem.dtypes import dtype_of
from ..problem.gemm import GemmProblem
from ..selection import select
from .contest import NUMPY, Board, Check, Contestant, OnDevice, OnNumpy, Sample, Size, random_pair

Array = np.ndarray[Any, np.dtype[Any]]

BASELINE = "sequential"
_FIRST_PROBE = 10**6  # multiply-adds: the smallest product that says how fast a kernel is


@dataclass(frozen=True)
class Rules:
    """How often a kernel runs at one size at most, and for how long in seconds, first run aside."""

    rounds: int = 7
    limit: float = 10.0


@dataclass(frozen=True)
class Row:
    """What became of one kernel at one size: times in seconds, or the reason why there are none.

    ``error_ratio`` must stay within ``error_limit`` (:mod:`pyclmm.checks.reference`). ``speedup`` is over
    `sequential`, whose time is ``extrapolated`` from a smaller product where it was too slow to run.
    """

    kernel: str
    config: TileConfig | None = None
    samples: tuple[Sample, ...] = ()
    flops: int = 0
    error_ratio: float | None = None
    error_limit: float | None = None
    reason: str | None = None
    too_slow: bool = False
    speedup: float | None = None
    extrapolated: bool = False

    @property
    def wall(self) -> float | None:
        """Median wall time."""
        return statistics.median(s.wall for s in self.samples) if self.samples else None

    @property
    def device(self) -> float | None:
        """Median device time."""
        times = [s.device for s in self.samples if s.device is not None]
        return statistics.median(times) if times else None

    @property
    def seconds(self) -> float | None:
        """The time: the device's where the driver tells it, else wall time."""
        return self.device or self.wall

    @property
    def gflops(self) -> float | None:
        """10^9 operations a second."""
        return self.flops / self.seconds / 1e9 if self.seconds else None

    @property
    def correct(self) -> bool | None:
        """Whether the result is within the bound; None where there is no result."""
        if self.error_ratio is None or self.error_limit is None:
            return None
        return self.error_ratio < self.error_limit


@dataclass(frozen=True)
class Rung:
    """All kernels at one size."""

    size: Size
    dtype: str
    rows: tuple[Row, ...]
    checked_rows: int = 0

    def row(self, kernel: str) -> Row:
        return next(row for row in self.rows if row.kernel == kernel)

    @property
    def wrong(self) -> list[Row]:
        """The kernels whose results are not right."""
        return [row for row in self.rows if row.correct is False]


def kernel_names(asked: Sequence[str]) -> list[str]:
    """The kernels to run: those *asked* for or all, with the baseline at the end.

    Raises ArgumentError for a name that no kernel has.
    """
    names = list(dict.fromkeys(asked)) or [kernel.name for kernel in KERNELS]
    for name in names:
        if name != "auto":
            kernel_named(name)
    return names if BASELINE in names else [*names, BASELINE]


@dataclass
class _Entry:
    """A contestant on the way through its rounds."""

    contestant: Contestant
    samples: list[Sample] = field(default_factory=list)
    spent: float = 0.0
    error_ratio: float = 0.0
    failure: str | None = None

    def once(self) -> None:
        """One more sample; a failure of the driver ends this contestant, not the others."""
        try:
            self.samples.append(self.contestant.run())
        except (cl.Error, PyclmmError, MemoryError) as error:
            self.failure = in_short(error)
        else:
            self.spent += self.samples[-1].wall


class Track:
    """One device with the kernels that run on it, and how fast each was seen to be."""

    def __init__(
        self,
        queue: cl.CommandQueue,
        kernels: Sequence[str],
        rules: Rules | None = None,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """*queue* needs profiling; *on_step* is called with the name of what runs next."""
        self.queue, self.kernels, self.rules = queue, list(kernels), rules or Rules()
        self.device = device_info(queue.device)
        self._on_step = on_step
        self._pace: dict[str, tuple[int, float, float]] = {}  # work, wall time, time; in seconds

    def expected(self, kernel: str, work: int) -> float | None:
        """Seconds of wall time that *work* should take at the pace last seen; None: not seen yet."""
        if kernel not in self._pace:
            return None
        seen, wall, _ = self._pace[kernel]
        return wall / seen * work

    def probe(self, size: Size, dtype: np.dtype[Any]) -> None:
        """Run smaller products first, so that what is too slow for *size* is known before it runs."""
        work: float = _FIRST_PROBE
        while work * 5 < size.work:
            self.race(*random_pair(size.shrunk(work), dtype), rounds=1)
            work *= 10

    def race(self, a: Array, b: Array, rounds: int | None = None) -> Rung:
        """Every kernel and NumPy on ``a @ b``.

        A kernel that cannot run, or would take longer than the rules' limit, gets a row that says so.
        Raises DeviceMemoryError where the operands do not fit the device.
        """
        size = Size(a.shape[0], b.shape[1], a.shape[1])
        problem = problem_of(size.m, size.n, size.k, a.dtype)
        names = (*self.kernels, NUMPY)
        rows = {name: row for name in names if (row := self._refused(name, size, problem))}
        checked = 0
        if len(rows) < len(names):
            check = Check(a, b)
            checked = len(check.rows)
            for entry in self._rounds(list(self._entries(a, b, problem, rows)), check, rounds):
                rows[entry.contestant.name] = self._row(entry, problem, check, size)
        ordered = [rows[name] for name in names]
        return Rung(size, a.dtype.name, tuple(self._with_speedups(ordered, size)), checked)

    def _refused(self, name: str, size: Size, problem: GemmProblem) -> Row | None:
        if name not in (NUMPY, "auto"):
            reason = select.refusal(kernel_named(name), problem, self.device)
            if reason is not None:
                return Row(name, reason=reason)
        seconds = self.expected(name, size.work)
        if seconds is not None and seconds > self.rules.limit:
            reason = f"would take about {seconds:.3g} s, over the limit of {self.rules.limit:g} s"
            return Row(name, reason=reason, too_slow=True)
        return None

    def _entries(self, a: Array, b: Array, problem: GemmProblem, rows: dict[str, Row]) -> Iterator[_Entry]:
        """Contestants for all who have no row yet; a kernel that fails to build gets its row here."""
        board = Board(self.queue, a, b, dtype_of(problem.out_type))
        for name in self.kernels:
            if name in rows:
                continue
            self._on_step(name)
            try:
                yield _Entry(OnDevice(name, board))
            except (cl.Error, PyclmmError) as error:
                rows[name] = Row(name, reason=in_short(error))
        if NUMPY not in rows:
            yield _Entry(OnNumpy(a, b))

    def _rounds(self, entries: list[_Entry], check: Check, rounds: int | None) -> list[_Entry]:
        for entry in entries:
            self._on_step(entry.contestant.name)
            self._first(entry, check)
        for _ in range(rounds or self.rules.rounds):
            for entry in entries:
                if entry.failure is None and entry.spent < self.rules.limit:
                    entry.once()
        return entries

    def _first(self, entry: _Entry, check: Check) -> None:
        """The first run: checked, and only counted where it is long, because it may hold a compilation."""
        if isinstance(entry.contestant, OnDevice):
            entry.contestant.board.spoil()
        entry.once()
        if entry.failure is None:
            entry.error_ratio = check.ratio(entry.contestant.result())
            if entry.spent < self.rules.limit / 2:
                entry.samples.clear()
                entry.spent = 0.0

    def _row(self, entry: _Entry, problem: GemmProblem, check: Check, size: Size) -> Row:
        name, config = entry.contestant.name, entry.contestant.config
        if entry.failure is not None:
            return Row(name, config, reason=entry.failure)
        row = Row(name, config, tuple(entry.samples), problem.flops, entry.error_ratio, check.limit)
        if row.wall is not None and row.seconds is not None:
            self._pace[name] = (size.work, row.wall, row.seconds)
        return row

    def _with_speedups(self, rows: list[Row], size: Size) -> Iterator[Row]:
        own = next((row.seconds for row in rows if row.kernel == BASELINE), None)
        base = own
        if base is None and BASELINE in self._pace:
            seen, _, seconds = self._pace[BASELINE]
            base = seconds / seen * size.work
        for row in rows:
            if row.seconds and base:
                yield replace(row, speedup=base / row.seconds, extrapolated=own is None)
            else:
                yield row
