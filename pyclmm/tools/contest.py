"""One product for several contestants: its operands, the right result, and who computes it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from ..checks import reference
from ..errors import DeviceMemoryError, unknown_name
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..opencl.devices import device_info
from ..opencl.host_memory import allocate, check_size
from ..plan import Matmul
from ..problem.canonical import problem_of
from ..problem.dtypes import ELEMENT_TYPES, dtype_of

Array = np.ndarray[Any, np.dtype[Any]]

NUMPY = "numpy"
# Multiply-adds that checking may cost: NumPy has a fast product for some types only.
_CHECK_FAST, _CHECK_SLOW = 2 * 10**10, 10**8


@dataclass(frozen=True)
class Size:
    """M, N and K of one product."""

    m: int
    n: int
    k: int

    @property
    def work(self) -> int:
        """M N K, the multiply-adds."""
        return self.m * self.n * self.k

    def shrunk(self, work: float) -> Size:
        """About *work* multiply-adds: the long sides are cut to one length, the short ones stay."""
        short, middle, _ = sorted((self.m, self.n, self.k))
        side = work ** (1 / 3)
        if short < side:
            side = (work / short) ** (1 / 2)
            if middle < side:
                side = work / short / middle
        return Size(*(max(1, min(length, round(side))) for length in (self.m, self.n, self.k)))

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k}"


def ladder(top: float = 1e10) -> list[Size]:
    """Cubes whose work is 10^3, 10^4, ... up to *top* multiply-adds, rounded to whole sides."""
    sides = (round(10 ** (exponent / 3)) for exponent in range(3, 19) if 10**exponent <= top * 1.001)
    return [Size(side, side, side) for side in sides]


@dataclass(frozen=True)
class Sample:
    """One run, in seconds."""

    wall: float
    device: float | None = None


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype of an element type's name; ArgumentError with the nearest names otherwise."""
    if name not in ELEMENT_TYPES:
        raise unknown_name("dtype", name, ELEMENT_TYPES)
    return dtype_of(name)


def random_matrix(rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Normally distributed numbers, or small whole ones for integer types."""
    if dtype.kind in "biu":
        low, high = {"b": (0, 2), "u": (0, 16), "i": (-8, 8)}[dtype.kind]
        return rng.integers(low, high, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    own = np.float64 if dtype == np.float64 else np.float32
    return rng.standard_normal(shape, dtype=own).astype(dtype, copy=False)


def random_pair(size: Size, dtype: np.dtype[Any], seed: int = 0) -> tuple[Array, Array]:
    """A and B of that size."""
    rng = np.random.default_rng(seed)
    return random_matrix(rng, (size.m, size.k), dtype), random_matrix(rng, (size.k, size.n), dtype)


class Check:
    """The right result of one product, of all its rows or as many as are cheap to compute.

    *operands*: as :func:`reference.error_ratio` takes it.
    """

    def __init__(self, a: Array, b: Array, operands: float = 0.0) -> None:
        fast = a.dtype.kind in "fcV" and a.dtype not in (np.dtype(np.float64), np.dtype(np.complex128))
        budget = _CHECK_FAST if fast else _CHECK_SLOW
        (m, k), n = a.shape, b.shape[1]
        count = min(m, max(1, budget // (k * n)))
        self.rows = np.unique(np.linspace(0, m - 1, count).astype(np.int64))
        self.a, self.b, self.operands = a[self.rows], b, operands
        self.right = reference.matmul(self.a, b)
        self.limit = reference.limit(k) * (2 if a.dtype.kind == "c" else 1)

    def ratio(self, got: Array) -> float:
        return reference.error_ratio(
            got[self.rows], self.a, self.b, result=self.right, operands=self.operands
        )


class Contestant(Protocol):
    """Something that computes the product."""

    name: str
    config: TileConfig | None

    def run(self) -> Sample: ...

    def result(self) -> Array: ...


class OnNumpy:
    """numpy.matmul on the host."""

    def __init__(self, a: Array, b: Array) -> None:
        self.name = NUMPY
        self.config: TileConfig | None = None
        self.a, self.b = a, b
        self._result: Array = np.empty(0)

    def run(self) -> Sample:
        start = time.perf_counter()
        self._result = np.matmul(self.a, self.b)
        return Sample(time.perf_counter() - start)

    def result(self) -> Array:
        return self._result


class OnDevice:
    """A kernel on operands that lie on the device."""

    def __init__(self, name: str, board: Board) -> None:
        self.name, self.board = name, board
        self.plan = Matmul(board.a, board.b, out=board.out, kernel=name, queue=board.queue)
        self.config = self.plan.config

    def run(self) -> Sample:
        start = time.perf_counter()
        events = self.plan.enqueue(self.board.a, self.board.b, out=self.board.out)
        self.board.queue.finish()
        wall = time.perf_counter() - start
        return Sample(wall, (events[-1].profile.end - events[0].profile.start) * 1e-9 or None)

    def result(self) -> Array:
        return self.board.read()


class Board:
    """The operands on the device, and the result that every kernel writes in turn."""

    def __init__(self, queue: cl.CommandQueue, a: Array, b: Array, out_dtype: np.dtype[Any]) -> None:
        self.queue = queue
        out = np.empty((a.shape[0], b.shape[1]), out_dtype)
        self.a, a_memory = self._place(a, "a")
        self.b, b_memory = self._place(b, "b")
        self.out, self._memory = self._place(out, "out")
        for memory, source in ((a_memory, a), (b_memory, b)):
            cl.enqueue_copy(queue, memory, np.ascontiguousarray(source).view(np.uint8))

    def _place(self, x: Array, argument: str) -> tuple[cla.Array, cl.Buffer]:
        buffer = allocate(self.queue.context, x.nbytes, device_info(self.queue.device), argument)
        return cla.Array(self.queue, x.shape, x.dtype, data=buffer), buffer

    def spoil(self) -> None:
        """Fill the result with ones in every bit, NaN in floats: no kernel inherits a right one."""
        cl.enqueue_fill_buffer(self.queue, self._memory, np.full(1, 255, np.uint8), 0, self.out.nbytes)
        self.queue.finish()

    def read(self) -> Array:
        result = np.empty(self.out.shape, self.out.dtype)
        cl.enqueue_copy(self.queue, result.view(np.uint8), self._memory)
        return result


def check_memory(size: Size, dtype: np.dtype[Any], device: DeviceInfo) -> None:
    """Raise DeviceMemoryError where operands or result are too large for the device or the host.

    Better before random numbers are drawn than after.
    """
    out_dtype = dtype_of(problem_of(size.m, size.n, size.k, dtype).out_type)
    shapes = {"a": (size.m, size.k), "b": (size.k, size.n), "out": (size.m, size.n)}
    total = 0
    for argument, (rows, columns) in shapes.items():
        nbytes = rows * columns * (out_dtype if argument == "out" else dtype).itemsize
        check_size(nbytes, device, argument)
        total += nbytes
    if total > device.global_mem_size:
        raise DeviceMemoryError(
            f"a, b and out need {total} bytes; device {device.name!r} has {device.global_mem_size}"
        )
