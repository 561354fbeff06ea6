"""The tuner: which kernel and configuration is fastest here, found by measuring, kept in a table.

For each product, the choice of today is the incumbent. Every other candidate that a family offers (its
``configs``, best families and best guesses first) challenges it: compiled, checked and timed in a child
process (tuner_child.py), round by round in turn with the incumbent, and the winner only if it is faster by
more than both scatter. A candidate that ends its process, or does not come to an end, is left behind, and a
new child goes on with the next. The last incumbent is checked again at other shapes, in a child of its own,
before it goes into the user's table (tables.py).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyopencl as cl

from ..checks import isolation, worker
from ..errors import ArgumentError, unknown_name
from ..kernels import KERNELS
from ..kernels.device import DeviceInfo
from ..opencl import host_memory
from ..opencl.devices import device_info, find_device
from ..problem.canonical import problem_of
from ..problem.dtypes import ELEMENT_TYPES, dtype_of
from ..problem.gemm import GemmProblem
from ..selection import schema, select, tables
from ..selection.tables import Entry

LIMIT = 30.0  # seconds that one candidate may take, to compile, check and time
SHAPES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048))
_START = 10.0  # seconds for a child to start and to make operands
_FAMILY = 4  # a family's best guess comes after that many of the family before it


@dataclass(frozen=True)
class Tried:
    """What became of one candidate: its median time in seconds, or the reason why it has none.

    ``gain``: how many times as fast as the incumbent it was, in the same rounds.
    """

    choice: select.Choice
    seconds: float | None = None
    gain: float = 1.0
    reason: str | None = None
    won: bool = False


@dataclass(frozen=True)
class Progress:
    """Where the tuner is: the product, candidates tried of all there are, and time left at most."""

    problem: GemmProblem
    tried: int
    total: int
    seconds_left: float
    best: Tried | None


OnProgress = Callable[[Progress], None]


@dataclass
class Search:
    """The search for one product: candidates in the order tried, and the entry for the table.

    ``entry`` is None, with the ``reason``, where nothing was found that may be used.
    """

    problem: GemmProblem
    total: int = 0
    tried: list[Tried] = field(default_factory=list)
    entry: Entry | None = None
    reason: str | None = None

    @property
    def best(self) -> Tried | None:
        """The last winner."""
        return next((t for t in reversed(self.tried) if t.won), None)

    @property
    def gain(self) -> float:
        """How many times as fast the last winner is as the first incumbent, from race to race."""
        return math.prod(t.gain for t in self.tried if t.won)


@dataclass
class Tuning:
    """What a run of the tuner found. ``stored``: it is in the user's table, all of it."""

    device: DeviceInfo
    searches: list[Search] = field(default_factory=list)
    stored: bool = True
    interrupted: bool = False

    @property
    def entries(self) -> list[Entry]:
        return [search.entry for search in self.searches if search.entry is not None]


def tune(
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
    dtypes: Sequence[str] = ("float32",),
    layouts: Sequence[str] = ("NN", "NT", "TN"),
    budget: float = 120.0,
    device: cl.Device | str | None = None,
    on_progress: OnProgress = lambda _: None,
    precisions: Sequence[str] = ("highest",),
) -> Tuning:
    """Measure which kernel is fastest for M x N x K products, and keep that for products like them.

    *budget*: seconds, shared between the products. *device*: as ``pyclmm --device`` takes it, or a
    PyOpenCL device. *precisions*: as :func:`pyclmm.matmul` takes them; a call uses what was found
    for its own. Ctrl-C ends the run and keeps what was found. Plans that exist stay as they are.

    Raises ArgumentError for shapes, types, layouts and precisions that there are not.
    """
    if not budget > 0:
        raise ArgumentError(f"budget is {budget}; pass a number of seconds over 0")
    found = find_device(device) if device is None or isinstance(device, str) else device
    tuning = Tuning(device_info(found))
    problems = list(_all_of(shapes, dtypes, layouts, precisions))
    end = time.monotonic() + budget
    for number, problem in enumerate(problems):
        now = time.monotonic()
        if now >= end or tuning.interrupted:
            break
        share = (end - now) / (len(problems) - number)
        searching = _Searching(problem, tuning.device, now + share, end, on_progress)
        tuning.searches.append(searching.search)
        try:
            _tune(tuning, searching)
        except KeyboardInterrupt:  # a second one: what is not checked is not kept
            searching.search.reason = "interrupted"
    return tuning


def _tune(tuning: Tuning, searching: _Searching) -> None:
    """One product's search, its winner checked again and stored. The first Ctrl-C only ends the search."""
    search = searching.search
    try:
        searching.run()
    except KeyboardInterrupt:
        tuning.interrupted = True
    if search.best is None:
        return
    try:
        search.reason = searching.checked_again(search.best.choice)
    except KeyboardInterrupt:
        if tuning.interrupted:
            raise
        tuning.interrupted = True
        search.reason = searching.checked_again(search.best.choice)
    if search.reason is None:
        search.entry = _entry(search.problem, search.best)
        tuning.stored &= tables.merge(tuning.device, [search.entry])


def _all_of(
    shapes: Sequence[tuple[int, int, int]],
    dtypes: Sequence[str],
    layouts: Sequence[str],
    precisions: Sequence[str],
) -> Iterator[GemmProblem]:
    for dtype in dtypes:
        for shape in shapes:
            for layout in layouts:
                for precision in precisions:
                    yield product(shape, dtype, layout, precision)


def product(shape: tuple[int, int, int], dtype: str, layout: str, precision: str = "highest") -> GemmProblem:
    """The product of that shape, (M, N, K), of element types and layout by name."""
    if len(shape) != 3 or min(shape) < 1:
        raise ArgumentError(f"a shape is {shape}; pass M, N and K of 1 or more")
    if dtype not in ELEMENT_TYPES:
        raise unknown_name("dtype", dtype, ELEMENT_TYPES)
    return problem_of(*shape, dtype_of(dtype), layout, precision)


def choices(problem: GemmProblem, device: DeviceInfo) -> list[select.Choice]:
    """Every candidate, the incumbent first."""
    ranked = []
    families = [k for k in KERNELS if k.automatic and select.refusal(k, problem, device) is None]
    for place, family in enumerate(families):
        for rank, config in enumerate(family.configs(problem, device)):
            ranked.append((rank + _FAMILY * place, place, select.Choice(family, config)))
    incumbent = next(select.candidates(problem, device, "auto"))
    ranked.sort(key=lambda one: one[:2])
    return [incumbent, *(choice for _, _, choice in ranked if choice != incumbent)]


def copy_bandwidth(queue: cl.CommandQueue) -> float:
    """Bytes/s, read and written, of a copy within the device's memory. *queue* needs profiling."""
    info = device_info(queue.device)
    nbytes = min(1 << 28, info.max_mem_alloc_size // 4, info.global_mem_size // 8)
    source, target = (
        host_memory.allocate(queue.context, nbytes, info, name) for name in ("source", "target")
    )
    cl.enqueue_fill_buffer(queue, source, np.zeros(1, np.uint8), 0, nbytes)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        event = cl.enqueue_copy(queue, target, source)
        event.wait()
        wall = time.perf_counter() - start
        seconds.append((event.profile.end - event.profile.start) * 1e-9 or wall)
    return 2 * nbytes / median(seconds)


def median(samples: Sequence[float]) -> float:
    """Of times in seconds."""
    return statistics.median(samples)


def beats(challenger: Sequence[float], incumbent: Sequence[float]) -> bool:
    """Whether the challenger's median is lower by more than either of them scatters."""
    gap = median(incumbent) - median(challenger)
    return gap > max(_spread(challenger), _spread(incumbent))


def _spread(samples: Sequence[float]) -> float:
    """The median distance from the median."""
    middle = median(samples)
    return median([abs(sample - middle) for sample in samples])


def _entry(problem: GemmProblem, best: Tried) -> Entry:
    return Entry(
        problem.a_type,
        problem.b_type,
        problem.out_type,
        tables.layout_of(problem),
        problem.precision,
        tables.is_aligned(problem),
        problem.m,
        problem.n,
        problem.k,
        best.choice.kernel.name,
        best.choice.config,
        float(best.seconds or 0),
        datetime.now(timezone.utc).date().isoformat(),
    )


class _Searching:
    """One product's search on its way."""

    def __init__(
        self,
        problem: GemmProblem,
        device: DeviceInfo,
        deadline: float,
        end: float,
        on_progress: OnProgress,
    ) -> None:
        self.choices = choices(problem, device)
        self.search = Search(problem, len(self.choices))
        self.deadline, self.end, self.on_progress = deadline, end, on_progress
        self.waiting = list(range(len(self.choices)))
        self.incumbent: int | None = None
        self.trying: tuple[int, float] | None = None  # which, and since when
        self.request = {
            "device": device.identity,
            "problem": schema.problem_json(problem),
            "choices": [
                {"kernel": c.kernel.name, "config": schema.config_json(c.config)} for c in self.choices
            ],
            "limit": LIMIT,
        }

    def run(self) -> None:
        """Try candidates until all are, or time is up; a child that is lost costs its candidate only."""
        while self.waiting and (left := self.deadline - time.monotonic()) > 0:
            known = [] if self.incumbent is None else [self.incumbent]
            self.trying = None
            request = self.request | {"order": known + self.waiting, "seconds": left}
            failure = worker.ask("tools.tuner_child", request, left + LIMIT + _START, self._hear)
            if failure is None:
                return
            if not self._blamed(failure):
                self.search.reason = failure.reason
                return

    def _blamed(self, failure: worker.Failure) -> bool:
        """Put the child's end down to the candidate that it tried, if it came to one."""
        if self.trying is None:
            return False
        index, since = self.trying
        late = failure.hung or time.monotonic() - since >= LIMIT
        self._lost(index, f"it did not end within {LIMIT:g} seconds" if late else failure.reason)
        return True

    def checked_again(self, choice: select.Choice) -> str | None:
        """Why *choice* must not be used after all: it was wrong at another shape."""
        answers: list[Any] = []
        request = self.request | {"verify": self.choices.index(choice)}
        failure = worker.ask("tools.tuner_child", request, LIMIT, answers.append)
        if failure is not None:
            return f"at other shapes, {failure.reason}"
        return isolation.result(answers).reason

    def _hear(self, answer: Any) -> None:
        match answer:
            case {"trying": int(index)}:
                self.trying = index, time.monotonic()
            case {"index": int(index), "reason": str(reason)}:
                self._lost(index, reason)
            case {"index": int(index), "seconds": [*seconds], "incumbent": [*incumbent]} if seconds:
                self._timed(index, seconds, incumbent)

    def _lost(self, index: int, reason: str) -> None:
        if index == self.incumbent:  # right before and not now: not to be relied on
            self.incumbent = None
            self.search.tried = [t for t in self.search.tried if t.choice != self.choices[index]]
        self._add(index, Tried(self.choices[index], reason=reason))

    def _timed(self, index: int, seconds: list[float], incumbent: list[float]) -> None:
        if index == self.incumbent:  # in a new child, for the next challengers
            return
        won = not incumbent or beats(seconds, incumbent)
        if won:
            self.incumbent = index
        gain = median(incumbent) / median(seconds) if incumbent else 1.0
        self._add(index, Tried(self.choices[index], median(seconds), gain, won=won))

    def _add(self, index: int, tried: Tried) -> None:
        if index in self.waiting:
            self.waiting.remove(index)
        self.search.tried.append(tried)
        left = max(0.0, self.end - time.monotonic())
        done = len(self.search.tried)
        self.on_progress(Progress(self.search.problem, done, len(self.choices), left, self.search.best))
