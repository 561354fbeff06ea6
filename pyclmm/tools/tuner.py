"""The tuner: measures which kernel and configuration is fastest, and keeps the result in a measured table.

For each product, the first incumbent is the choice without tuning. Every other candidate of the families
(their ``configs``, the best estimates first) is a challenger. It is compiled, checked and timed in a child
process, round by round in turn with the incumbent. It wins only if it is faster by more than the times of
both scatter. If it crashes or hangs, a new child continues with the next one. The last incumbent goes into
the user's table (selection/tables.py).
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from numbers import Real
from typing import Any

import numpy as np
import pyopencl as cl

from .. import fields, repr_tables
from ..checks import child, isolation, worker
from ..errors import ArgumentError, DeviceLostError, DTypeError, PyclmmError, brief
from ..kernels import KERNELS, kernel_named
from ..kernels.device import DeviceInfo
from ..opencl.devices import DeviceChoice, device_info, find_device
from ..opencl.queues import new_queue
from ..problem.canonical import problem_of
from ..problem.gemm import GemmProblem
from ..problem.literals import Precision
from ..selection import schema, select, tables
from ..selection.tables import Entry
from .terminal import OnStage, Stage, duration, significant, unheard
from .timing import Size, Terms, TimedProduct, beats, check_memory, dtype_named

LIMIT = 30.0  # seconds to compile, check and time one candidate
_MOST_S = 1e9  # of a budget: systems wait no longer
SHAPES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048))
TUNED = ("product", "tried", "kernel", "tile", "ms", "GFLOP/s", "speed-up")
_START = 10.0  # seconds for a child to start and to create operands
_MOST_TIMES = 1000  # of a candidate, in an answer
_FAMILY = 4  # a family's first configuration is tried after this many of the family before it


@dataclass(frozen=True)
class Tried:
    """A candidate's median seconds, or why it has none. ``gain``: times as fast as the incumbent was."""

    choice: select.Choice
    seconds: float | None = None
    gain: float = 1.0
    reason: str | None = None
    won: bool = False


@dataclass(repr=False)
class Search:
    """The search for one product: candidates as they were tried, and the ``entry`` for the table, or the
    ``reason`` why there is none. ``outclassed``: how many were passed over, as their family is too slow.
    """

    problem: GemmProblem
    total: int = 0
    tried: list[Tried] = field(default_factory=list)
    entry: Entry | None = None
    reason: str | None = None
    outclassed: int = 0
    interrupted: bool = False

    def __repr__(self) -> str:
        product, tried, kernel, tile, *_ = self.row()
        return f"<Search {product}: {tried} tried: {kernel} {tile}>"

    def row(self) -> tuple[str, ...]:
        """What was tried and what won, as TUNED says; the reason, if nothing did."""
        product, tried = str(self.problem), f"{len(self.tried)} of {self.total}"
        if self.entry is None:
            return product, tried, "-", self.reason or "nothing ran", "-", "-", "-"
        seconds = self.entry.seconds
        numbers = (seconds * 1e3, self.problem.flops / seconds / 1e9, self.gain)
        return product, tried, self.entry.kernel, str(self.entry.config), *map(significant, numbers)

    @property
    def untried(self) -> str | None:
        """What became of the candidates that were not tried; None if all were."""
        rest = self.total - len(self.tried) - self.outclassed
        why = "interrupted" if self.interrupted else "time was up"
        outclassed = f"{'the rest were' if rest <= 0 else self.outclassed} outclassed"
        lines = [outclassed] * bool(self.outclassed) + [f"{rest} not tried: {why}"] * (rest > 0)
        return f"{len(self.tried)} of {self.total} tried; {'; '.join(lines)}" if lines else None

    @property
    def best(self) -> Tried | None:
        """The last winner."""
        return next((t for t in reversed(self.tried) if t.won), None)

    @property
    def gain(self) -> float:
        """How many times as fast as the first incumbent the last winner is: the product of all gains."""
        return math.prod(t.gain for t in self.tried if t.won)


@dataclass(repr=False)
class Tuning:
    """The result of a run of the tuner. ``stored``: all entries are in the user's table. ``total``: the
    products asked for, of which the last may have had no search, as time was up.
    """

    device: DeviceInfo
    searches: list[Search] = field(default_factory=list)
    stored: bool = True
    interrupted: bool = False
    total: int = 0

    def __repr__(self) -> str:
        table = repr_tables.text(TUNED, [x.row() for x in self.searches]).replace("\n", "\n  ")
        return f"<{self._title()}>\n  {table}"

    def _repr_html_(self) -> str:
        return repr_tables.html(TUNED, [x.row() for x in self.searches], self._title())

    def _title(self) -> str:
        marks = ", interrupted" * self.interrupted + ", not stored" * (not self.stored)
        return f"Tuning {len(self.entries)} of {self.total} products on {self.device.name}{marks}"

    @property
    def entries(self) -> list[Entry]:
        return [search.entry for search in self.searches if search.entry is not None]


def tune(
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
    dtypes: Sequence[str] = ("float32",),
    layouts: Sequence[str] = ("NN", "NT", "TN"),
    budget: float = 120.0,
    device: DeviceChoice | None = None,
    on_progress: OnStage = unheard,
    precisions: Sequence[Precision] = ("highest",),
) -> Tuning:
    """Measure which kernel is fastest for M x N x K products, and use the result for similar products.

    *budget*: seconds, shared between the products. *device* and *precisions*: as :func:`pyclmm.matmul` takes
    them; a call uses what was found for its own. *on_progress* is called after each candidate. Ctrl-C ends
    the run and keeps what was found. Plans that exist stay as they are. Raises ArgumentError,
    DTypeError for what is no list of names, no number or no function, DeviceMemoryError.
    """
    _check_kinds(budget, on_progress, shapes=shapes, dtypes=dtypes, layouts=layouts, precisions=precisions)
    if not 0 < budget <= _MOST_S:
        raise ArgumentError(f"budget is {brief(budget)}; pass a number of seconds over 0, up to {_MOST_S:g}")
    budget = float(budget)  # of NumPy's numbers too, which JSON does not take
    tuning = Tuning(device_info(find_device(device)))
    asked = itertools.product(dtypes, shapes, layouts, precisions)
    problems = [product(shape, dtype, layout, precision) for dtype, shape, layout, precision in asked]
    for one in problems:
        check_memory(Size(one.m, one.n, one.k), dtype_named(one.a_type), tuning.device, Terms(arrays=True))
    tuning.total = len(problems)
    end = time.monotonic() + budget
    for number, problem in enumerate(problems):
        now = time.monotonic()
        if now >= end or tuning.interrupted:
            break
        share = (end - now) / (len(problems) - number)
        try:
            searching = _Searching(problem, tuning.device, now + share, end, on_progress)
            tuning.searches.append(searching.search)
            searching.run()
        except KeyboardInterrupt:
            tuning.interrupted = True
        for search in tuning.searches[number:]:  # none, if Ctrl-C came before it began
            search.interrupted = tuning.interrupted
            if search.best is not None:
                search.entry = _entry(problem, search.best)
                tuning.stored &= tables.merge(tuning.device, [search.entry])
    return tuning


def _check_kinds(budget: object, on_progress: object, **lists: object) -> None:
    """Raise DTypeError for a budget that is no number, no function, and what is no list."""
    for name, given in lists.items():
        if isinstance(given, str) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
            what = "(M, N, K)" if name == "shapes" else "names"
            raise DTypeError(f"{name} is {brief(given)}; pass a list of {what}")
    if not isinstance(budget, Real):
        raise DTypeError(f"budget is {brief(budget)}; pass a number of seconds over 0")
    if not callable(on_progress):
        raise DTypeError(f"on_progress is {brief(on_progress)}; pass a function that takes a stage")


def product(shape: tuple[int, int, int], dtype: str, layout: str, precision: str = "highest") -> GemmProblem:
    """The product of that shape, (M, N, K), of element types and layout by name."""
    is_one = isinstance(shape, tuple | list | np.ndarray) and len(shape) == 3
    if not is_one or not all(isinstance(x, int | np.integer) and x > 0 for x in shape):
        raise ArgumentError(
            f"a shape is {brief(shape)}; pass M, N and K, whole numbers of 1 or more, of each product"
        )
    m, n, k = map(int, shape)
    return problem_of(m, n, k, dtype_named(dtype), layout, precision)


def choices(problem: GemmProblem, device: DeviceInfo) -> list[select.Choice]:
    """All candidates, the incumbent first."""
    ranked = []
    families = [k for k in KERNELS if k.automatic and select.refusal(k, problem, device) is None]
    for place, family in enumerate(families):
        for rank, config in enumerate(family.configs(problem, device)):
            ranked.append((rank + _FAMILY * place, place, select.Choice(family, config)))
    incumbent = next(select.candidates(problem, device, "auto"))
    ranked.sort(key=lambda one: one[:2])
    return [incumbent, *(choice for _, _, choice in ranked if choice != incumbent)]


def _entry(problem: GemmProblem, best: Tried) -> Entry:
    return Entry(
        problem.a_type, problem.b_type, problem.out_type, problem.layout, problem.precision,
        tables.is_aligned(problem), problem.m, problem.n, problem.k,
        best.choice.kernel.name, best.choice.config, float(best.seconds or 0),
        datetime.now(timezone.utc).date().isoformat(),
    )  # fmt: skip


class _Searching:
    """The running search for one product."""

    def __init__(
        self, problem: GemmProblem, device: DeviceInfo, deadline: float, end: float, on_progress: OnStage
    ) -> None:
        self.choices = choices(problem, device)
        self.search = Search(problem, len(self.choices))
        self.deadline, self.end, self.on_progress = deadline, end, on_progress
        self.waiting = list(range(len(self.choices)))
        self.incumbent: int | None = None
        self.trying: tuple[int, float] | None = None  # its index, and when it began
        self.request = {
            "device": device.identity,
            "problem": schema.problem_json(problem),
            "choices": [
                {"kernel": c.kernel.name, "config": schema.config_json(c.config)} for c in self.choices
            ],
            "limit": LIMIT,
        }

    def run(self) -> None:
        """Try candidates until none is left or time is up. A crashed child costs only its candidate."""
        index, reason = fields.integer(0, len(self.choices) - 1), fields.matching("(?s).*", "text")
        times, before = (fields.list_of(fields.number(0, 1e6), least, _MOST_TIMES) for least in (1, 0))
        hear = fields.hearing(
            ({"trying": index}, self._begun),
            ({"outclassed": index}, self._outclassed),
            ({"index": index, "reason": reason}, self._lost),
            ({"index": index, "seconds": times, "incumbent": before}, self._timed),
        )
        while self.waiting and (left := self.deadline - time.monotonic()) > 0:
            known = [] if self.incumbent is None else [self.incumbent]
            self.trying = None
            request = self.request | {"order": known + self.waiting, "seconds": left}
            # This child is a trial already.
            failure = worker.ask("tools.tuner", request, left + LIMIT + _START, hear, {"PYCLMM_TRIAL": "off"})
            if failure is None:
                return
            if not self._blamed(failure):
                self.search.reason = failure.reason
                return

    def _blamed(self, failure: worker.Failure) -> bool:
        """Blame the child's crash on the candidate it tried. False if it had not tried one yet."""
        if self.trying is None:
            return False
        index, since = self.trying
        late = failure.hung or time.monotonic() - since >= LIMIT
        self._lost(index, f"it did not end within {LIMIT:g} seconds" if late else failure.reason)
        return True

    def _begun(self, trying: int) -> None:
        self.trying = trying, time.monotonic()

    def _outclassed(self, outclassed: int) -> None:
        if outclassed in self.waiting:
            self.waiting.remove(outclassed)
            self.search.outclassed += 1

    def _lost(self, index: int, reason: str) -> None:
        if index == self.incumbent:  # it was right before and fails now: unreliable
            self.incumbent = None
            self.search.tried = [t for t in self.search.tried if t.choice != self.choices[index]]
        self._add(index, Tried(self.choices[index], reason=reason))

    def _timed(self, index: int, seconds: list[float], incumbent: list[float]) -> None:
        if index == self.incumbent:  # in a new child, for the next challengers
            return
        won = not incumbent or beats(seconds, incumbent)
        if won:
            self.incumbent = index
        gain = statistics.median(incumbent) / statistics.median(seconds) if incumbent else 1.0
        self._add(index, Tried(self.choices[index], statistics.median(seconds), gain, won=won))

    def _add(self, index: int, tried: Tried) -> None:
        if index in self.waiting:
            self.waiting.remove(index)
        self.search.tried.append(tried)
        search = self.search
        best = "" if search.best is None else f", best {duration(search.best.seconds or 0)}"
        left = max(0.0, self.end - time.monotonic())
        self.on_progress(Stage(f"{search.problem}{best}", len(search.tried), search.total, left))


# The child


def answers(request: Any) -> Iterator[dict[str, Any]]:
    """The child: checks the candidates of "order" and times each in turn with the incumbent."""
    device = isolation.device_of(request["device"])
    problem = schema.problem_from(request["problem"])
    choices = [
        select.Choice(kernel_named(one["kernel"]), schema.config_from(one["config"]))
        for one in request["choices"]
    ]
    queue = new_queue(device, profiling=True)
    ring = TimedProduct(queue, problem)
    deadline = time.monotonic() + request["seconds"]
    for index in request["order"]:
        if time.monotonic() > deadline:
            return
        if choices[index].kernel.name in ring.outclassed:
            yield {"outclassed": index}
            continue
        yield {"trying": index}
        child.within(request["limit"])
        try:
            answer = ring.challenge(choices[index])
        except DeviceLostError:  # nothing runs in this process any more; the parent starts another
            raise
        except (PyclmmError, cl.Error) as error:
            answer = {"reason": str(error).splitlines()[0]}
        yield {"index": index} | answer
