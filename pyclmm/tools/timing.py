"""One product computed by several contestants: its operands, the right result, the contestants, the clock.

There is one clock for all: wall time. It runs from host to host (NumPy arrays in, NumPy array out, given as
``out=``), or from device to device (pyopencl Arrays in and out, until the queue is idle). The device's own
time, of a kernel's launches alone, stands beside it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from ..checks import reference
from ..checks.known_answers import operands_error
from ..errors import DeviceMemoryError, PyclmmError, in_short, unknown_name
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..opencl import clock
from ..opencl.devices import device_info
from ..opencl.host_memory import allocate, check_size
from ..plan import Matmul
from ..problem.canonical import problem_of
from ..problem.dtypes import ELEMENT_TYPES, dtype_of
from ..problem.gemm import GemmProblem
from ..problem.literals import Precision
from ..selection.select import Choice

Array = np.ndarray[Any, np.dtype[Any]]

NUMPY = "numpy"
# The most multiply-adds of a check: NumPy has a fast product for some types only.
_CHECK_FAST, _CHECK_SLOW = 2 * 10**10, 10**8
# Of two candidates of the tuner: the fewest and the most rounds, and seconds for them if that is enough.
_ROUNDS, _SECONDS = (5, 25), 0.3
_HOPELESS = 2.0  # times the incumbent's time: no further runs
_OUTCLASSED = 5.0  # times the incumbent's time: the family's other configurations are skipped too
SLICE = 0.01  # seconds: a sample of a short call is the mean of as many calls as fill this
_LONG = 0.2  # seconds: a longer call is a sample by itself, the first one too
PAUSE = 0.11  # seconds: NumPy's threads spin for up to 0.1 s after a product, and would occupy a core
THREADED = 10**5  # multiply-adds: NumPy computes smaller products in one thread


@dataclass(frozen=True)
class Size:
    """M, N and K of a product, and how many of them lie in a stack."""

    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def work(self) -> int:
        """The multiply-adds: M N K for each product of the stack."""
        return self.m * self.n * self.k * self.batch

    @property
    def stack(self) -> tuple[int, ...]:
        """The axes of an operand before its rows and columns: none for a single product."""
        return (self.batch,) if self.batch > 1 else ()

    def shrunk(self, work: float) -> Size:
        """A size of about *work* multiply-adds: a shorter stack, then long sides cut; short sides stay."""
        one = self.m * self.n * self.k
        if work > one:
            return replace(self, batch=max(1, min(self.batch, round(work / one))))
        short, middle, _ = sorted((self.m, self.n, self.k))
        side = work ** (1 / 3)
        if short < side:
            side = (work / short) ** (1 / 2)
            if middle < side:
                side = work / short / middle
        return Size(*(max(1, min(length, round(side))) for length in (self.m, self.n, self.k)))

    def __str__(self) -> str:
        return f"{self.batch} of " * (self.batch > 1) + f"{self.m} x {self.n} x {self.k}"


@dataclass(frozen=True)
class Terms:
    """What holds for all contestants: the precision; whether operands are Arrays or NumPy arrays; the most
    samples of one at one size, and the most seconds of them, not counting the first.
    """

    precision: Precision = "highest"
    arrays: bool = False
    rounds: int = 7
    limit: float = 10.0

    @property
    def clock(self) -> str:
        """From where to where wall time runs."""
        return "device to device" if self.arrays else "host to host"


def ladder(top: float = 1e10) -> list[Size]:
    """Cubes of 10^3, 10^4, ... up to *top* multiply-adds, with sides rounded to whole numbers."""
    sides = (round(10 ** (exponent / 3)) for exponent in range(3, 19) if 10**exponent <= top * 1.001)
    return [Size(side, side, side) for side in sides]


@dataclass(frozen=True)
class Sample:
    """One measurement, in seconds: wall time of a call, and the device's time for the launches of a call."""

    wall: float
    device: float | None = None


def seconds_of(call: Callable[[], object]) -> float:
    """Wall seconds of a call: a long first one, or the mean of as many as fill a slice after it."""
    once = clock.elapsed(call)
    return once if once > _LONG else clock.elapsed(call, max(1, int(SLICE / once)))


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype with that name. Raises ArgumentError with the nearest names if there is none."""
    if name not in ELEMENT_TYPES:
        raise unknown_name("dtype", name, ELEMENT_TYPES)
    return dtype_of(name)


def random_matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Normally distributed numbers; small whole numbers for integer types."""
    if dtype.kind in "biu":
        low, high = {"b": (0, 2), "u": (0, 16), "i": (-8, 8)}[dtype.kind]
        return rng.integers(low, high, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    own = np.float64 if dtype == np.float64 else np.float32
    return rng.standard_normal(shape, dtype=own).astype(dtype, copy=False)


def random_pair(size: Size, dtype: np.dtype[Any], seed: int = 0, layout: str = "NN") -> tuple[Array, Array]:
    """A and B of that size. One whose letter of *layout* is T is stored transposed: a view."""
    rng = np.random.default_rng(seed)
    shapes = ((size.m, size.k), (size.k, size.n))
    a, b = (
        random_matrix(rng, (*size.stack, *shape), dtype)
        if letter == "N"
        else random_matrix(rng, (*size.stack, *reversed(shape)), dtype).swapaxes(-1, -2)
        for letter, shape in zip(layout, shapes, strict=True)
    )
    return a, b


def size_of(a: Array, b: Array) -> Size:
    """The size of ``a @ b``, where both are matrices or both are stacks of as many."""
    return Size(a.shape[-2], b.shape[-1], a.shape[-1], math.prod(a.shape[:-2]))


def layout_of(a: Array, b: Array) -> str:
    """A letter for each operand: T if it is stored transposed."""
    return "".join("T" if _is_transposed(x) else "N" for x in (a, b))


def _is_transposed(x: Array) -> bool:
    return not x.flags.c_contiguous and x.swapaxes(-1, -2).flags.c_contiguous


class Expected:
    """The right result: all rows, or as many as are cheap. *operands*: as for reference.error_ratio."""

    def __init__(self, a: Array, b: Array, operands: float = 0.0) -> None:
        fast = a.dtype.kind in "fcV" and a.dtype not in (np.dtype(np.float64), np.dtype(np.complex128))
        budget = _CHECK_FAST if fast else _CHECK_SLOW
        self.size = size = size_of(a, b)
        m, k = size.m, size.k
        count = min(m, max(1, budget // (k * size.n * size.batch)))
        self.rows = np.unique(np.linspace(0, m - 1, count).astype(np.int64))
        self.a, self.b, self.operands = a[..., self.rows, :], b, operands
        self.right = reference.matmul(self.a, b)
        self.limit = reference.limit(k) * (2 if a.dtype.kind == "c" else 1)

    def ratio(self, got: Array) -> float:
        return reference.error_ratio(
            got[..., self.rows, :], self.a, self.b, result=self.right, operands=self.operands
        )


class Contestant:
    """The kernel called *name*, perhaps in one configuration, or NumPy, on the operands of *board*, and its
    samples so far, which took ``spent`` seconds. ``kernel`` is what does it: "auto" has chosen one.
    ``failure``: why there are no further samples.
    """

    def __init__(self, name: str, board: Board, config: TileConfig | None = None) -> None:
        self.name, self.board = name, board
        self.samples: list[Sample] = []
        self.spent = self.error_ratio = 0.0
        self.failure: str | None = None
        self.kernel: str | None = None
        self.config: TileConfig | None = None
        if name != NUMPY:
            own: Any = {"kernel": name if config is None else (name, config), **board.how}
            self._on_arrays = Matmul(board.a, board.b, out=board.out, **own)  # for the device's time too
            if not board.arrays:
                self._on_host = Matmul(board.host_a, board.host_b, out=board.host_out, **own)
            used = self._on_arrays if board.arrays else self._on_host
            self.kernel, self.config = used.kernel, used.config

    def once(self) -> None:
        """Take one more sample. A failure of the driver stops this contestant, not the others."""
        try:
            self.samples.append(self.run())
        except (cl.Error, PyclmmError, MemoryError) as error:
            self.failure = in_short(error)
        else:
            self.spent += self.samples[-1].wall

    def run(self) -> Sample:
        device = None if self.name == NUMPY else clock.device_seconds(self._on_device()) or None
        return Sample(seconds_of(self._call), device)

    def _call(self) -> None:
        board = self.board
        if self.name == NUMPY:
            np.matmul(board.host_a, board.host_b, out=board.host_out)
        elif board.arrays:
            self._on_device()
        else:
            self._on_host(board.host_a, board.host_b, out=board.host_out)

    def _on_device(self) -> list[cl.Event]:
        """Multiply the Arrays; the events of the launches, which have ended."""
        events = self._enqueued()
        self.board.queue.finish()
        return events

    def _enqueued(self, wait_for: list[cl.Event] | None = None) -> list[cl.Event]:
        return self._on_arrays.enqueue(self.board.a, self.board.b, out=self.board.out, wait_for=wait_for)

    def gated(self) -> float:
        """Seconds from the first launch's start to the last one's end. All wait for a user event, as gaps
        between them would favour kernels with one launch.
        """
        queue = self.board.queue
        gate = cl.UserEvent(queue.context)
        try:
            events = self._enqueued([gate])
            queue.flush()
        finally:
            wall = clock.elapsed(lambda: gate.set_status(cl.command_execution_status.COMPLETE))
        wall += clock.elapsed(queue.finish)
        return clock.device_seconds(events) or wall

    def result(self) -> Array:
        return self.board.read() if self.board.arrays else self.board.host_out


class Board:
    """The operands on the host and on the device, and in both places one result for every kernel in turn."""

    def __init__(self, queue: cl.CommandQueue, a: Array, b: Array, out_dtype: np.dtype[Any], terms: Terms):
        self.queue, self.arrays = queue, terms.arrays
        self.how: Any = {"precision": terms.precision, "queue": queue}  # for every plan
        self.host_a, self.host_b = a, b
        self.host_out: Array = np.empty((*a.shape[:-1], b.shape[-1]), out_dtype)
        self.a, self.b = (self._copied(x, name) for name, x in (("a", a), ("b", b)))
        self.out, self._memory = self._placed(self.host_out, "out")

    def _copied(self, x: Array, argument: str) -> cla.Array:
        """An Array with the numbers and the layout of *x*."""
        dense = x if _is_transposed(x) else np.ascontiguousarray(x)
        stored = dense.swapaxes(-1, -2) if _is_transposed(x) else dense
        array, memory = self._placed(dense, argument)
        cl.enqueue_copy(self.queue, memory, stored.view(np.uint8))
        return array

    def _placed(self, x: Array, argument: str) -> tuple[cla.Array, cl.Buffer]:
        """An Array with the shape and the strides of *x*, and its memory."""
        memory = allocate(self.queue.context, x.nbytes, device_info(self.queue.device), argument)
        return cla.Array(self.queue, x.shape, x.dtype, strides=x.strides, data=memory), memory

    def spoil(self) -> None:
        """Set every bit of both results (NaN in floats), so that no kernel passes with an earlier result."""
        self.host_out.view(np.uint8).fill(255)
        cl.enqueue_fill_buffer(self.queue, self._memory, np.full(1, 255, np.uint8), 0, self.out.nbytes)
        self.queue.finish()

    def read(self) -> Array:
        """The result on the device."""
        result = np.empty(self.out.shape, self.out.dtype)
        cl.enqueue_copy(self.queue, result.view(np.uint8), self._memory)
        return result


def check_memory(size: Size, dtype: np.dtype[Any], device: DeviceInfo, terms: Terms) -> None:
    """Raise DeviceMemoryError if operands and result do not fit the device: twice if they are NumPy arrays,
    for the calls and for the device's own time. To be called before random operands are drawn, which takes
    time.
    """
    out_dtype = dtype_of(problem_of(size.m, size.n, size.k, dtype).out_type)
    shapes = {"a": (size.m, size.k), "b": (size.k, size.n), "out": (size.m, size.n)}
    total = 0
    for argument, (rows, columns) in shapes.items():
        nbytes = size.batch * rows * columns * (out_dtype if argument == "out" else dtype).itemsize
        check_size(nbytes, device, argument)
        total += nbytes * (1 if terms.arrays else 2)
    if total > device.global_mem_size:
        raise DeviceMemoryError(
            f"a, b and out need {total} bytes; device {device.name!r} has {device.global_mem_size}"
        )


def beats(challenger: Sequence[float], incumbent: Sequence[float]) -> bool:
    """Whether the challenger's median is lower by more than the spread of either."""
    gap = statistics.median(incumbent) - statistics.median(challenger)
    return gap > max(_spread(challenger), _spread(incumbent))


def _spread(samples: Sequence[float]) -> float:
    """The median distance from the median."""
    middle = statistics.median(samples)
    return statistics.median([abs(sample - middle) for sample in samples])


class TimedProduct:
    """One product's operands on the device, and the incumbent that challengers are timed against."""

    def __init__(self, queue: cl.CommandQueue, problem: GemmProblem) -> None:
        self.problem, terms = problem, Terms(cast("Precision", problem.precision), arrays=True)
        size, dtype = Size(problem.m, problem.n, problem.k), dtype_of(problem.a_type)
        a, b = random_pair(size, dtype, layout=problem.layout)
        self.board = Board(queue, a, b, dtype_of(problem.out_type), terms)
        self.check = Expected(a, b, operands_error(problem))
        self.incumbent: Contestant | None = None
        self.to_beat = np.inf
        self.outclassed: set[str] = set()

    def challenge(self, choice: Choice) -> dict[str, Any]:
        """Seconds of the challenger and of the incumbent (none for the first), or a reason for no times.
        Raises as Matmul does: UnsupportedError after a wrong result in the self-check.
        """
        challenger = Contestant(choice.kernel.name, self.board, choice.config)
        self.board.spoil()
        first = challenger.gated()
        if not self.check.ratio(self.board.read()) < self.check.limit:
            return {"reason": f"wrong result at {self.problem}"}
        if _HOPELESS * self.to_beat < first < _OUTCLASSED * self.to_beat:
            first = challenger.gated()  # the device's clock may have been low in the first run
        if first > _OUTCLASSED * self.to_beat:
            self.outclassed.add(choice.kernel.name)
        if first > _HOPELESS * self.to_beat:
            return {"seconds": [first], "incumbent": [self.to_beat]}
        return self._race(challenger, first)

    def _race(self, challenger: Contestant, first: float) -> dict[str, Any]:
        """Run both in turn. The winner becomes the incumbent."""
        rounds = int(np.clip(_SECONDS / (2 * first), *_ROUNDS))
        both = [one.gated for one in (self.incumbent, challenger) if one is not None]
        *before, seconds = clock.in_turn(rounds, *both)
        incumbent = before[0] if before else []
        if not incumbent or beats(seconds, incumbent):
            self.incumbent, self.to_beat = challenger, statistics.median(seconds)
        else:
            self.to_beat = statistics.median(incumbent)
        return {"seconds": seconds, "incumbent": incumbent}
