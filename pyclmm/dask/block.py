"""The task of one output chunk: chunks go up to the device one by one, and their products add up there.

Two queues: while one product runs, the next chunks go up. Memory on the device: the output chunk and two
pairs of operands' chunks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from numpy.typing import NDArray

from ..api import gemm
from ..errors import DTypeError, ShapeError
from ..execution.verdicts import finish_own
from ..opencl import arrays, staging
from ..opencl.queues import PerThread, at_release, default_queue, queue_beside, queue_on
from ..opencl.watch import own_lock
from ..problem.dtypes import type_name
from ..raising import guarded
from .axes import Axes
from .workers import device_here

Host = NDArray[Any]

# Bytes of chunks that are joined with their neighbours. PoCL 3.0, two cores: 8 x 8 chunks of 16 or 64 KiB
# take a quarter to a third of the time, 4 x 4 of 256 KiB the same, 4 x 4 of 1 MiB twice as long.
_SMALL = 1 << 17

_PROMISED = "its Dask array promises another shape; correct from_delayed's shape=, or map_blocks' chunks="


class _Queues:
    """Two queues in the context of *like*: for transfers, ``up``, and for products."""

    def __init__(self, like: cl.CommandQueue) -> None:
        self.up, self.products = (queue_beside(like) for _ in range(2))


_kept: PerThread[_Queues] = PerThread(1)  # by context: that of a lost device is made anew
at_release(_kept.clear)


@dataclass(frozen=True)
class Product:
    """What all tasks of one product share. ``summed`` is the dtype of sums over several chunks of K."""

    axes: Axes
    dtype: np.dtype[Any]
    summed: np.dtype[Any]
    kernel: Any
    precision: Any
    reproducible: bool
    verify: bool | str


@guarded("a chunk's product")
def multiply(product: Product, xs: list[list[Host]], ys: list[list[Host]], earlier: Any, last: bool) -> Host:
    """One output chunk, or with *earlier* (the sum so far) or not *last* a part of its sum over K.

    ``xs[i][k]`` is chunk i of the rows and k of K; ``ys[k][j]`` is chunk k of K and j of the columns. Raises
    what :func:`pyclmm.gemm` raises.
    """
    only = earlier is None and last and len(ys) == 1
    dtype = product.dtype if only else product.summed
    left = [[_matrices(x, product.axes, 0) for x in row] for row in xs]
    right = [[_matrices(y, product.axes, 1) for y in row] for row in ys]
    _check_lengths(product.axes, xs, ys)
    m, n = sum(row[0].shape[-2] for row in left), sum(y.shape[-1] for y in right[0])
    stack = np.broadcast_shapes(left[0][0].shape[:-2], right[0][0].shape[:-2])
    shape = _shape(product.axes, xs, ys, stack)
    if earlier is not None and earlier.shape != shape:
        raise ShapeError(
            f"chunks of x and y give a product of shape {shape}, those before them along K "
            f"{earlier.shape}; {_PROMISED}"
        )
    result = np.empty((*stack, m, n), dtype)
    if result.size:
        with own_lock():  # so that finish() of another thread does not hear of this task's products
            _fill(result, (left, right), earlier, product, only)
            if product.verify:
                finish_own()
    return result.reshape(shape).astype(product.dtype if last else product.summed, copy=False)


def _fill(
    result: Host,
    operands: tuple[list[list[Host]], list[list[Host]]],
    earlier: Any,
    product: Product,
    only: bool,
) -> None:
    up, queue = _queues()
    c: Any = arrays.empty(queue, result.shape, result.dtype)
    if earlier is not None:
        _write(up, c, np.ascontiguousarray(earlier))
    ways: dict[str, Any] = {
        "queue": queue,
        "kernel": product.kernel,
        "precision": product.precision,
        "reproducible": product.reproducible,
        "verify": product.verify,
        "dtype": None if only else result.dtype,
    }
    left, right = operands
    running: list[cl.Event] = []
    for k, y_row in enumerate(right):
        if len(running) == 2:
            running.pop(0).wait()  # so that the chunks of two steps are on the device, and no more
        a = [_on_device(up, x) for x in _together([row[k] for row in left], -2)]
        b = [_on_device(up, y) for y in _together(y_row, -1)]
        up.flush()
        rows = zip(a, _edges(a, -2), strict=True)
        columns = zip(b, _edges(b, -1), strict=True)
        for (x, (top, bottom)), (y, (start, stop)) in itertools.product(rows, columns):
            part = c[..., top:bottom, start:stop]
            if not part.size:
                continue
            if k == 0 and earlier is None:
                gemm(x, y, out=part, **ways)
            else:
                gemm(x, y, part, beta=1.0, out=part, **ways)
        running.append(cl.enqueue_marker(queue))
        queue.flush()
    staging.download(queue, result.reshape(-1).view(np.uint8), c.base_data, running)


def _queues() -> tuple[cl.CommandQueue, cl.CommandQueue]:
    """This thread's queues on its worker's device, for transfers and for products. Threads do not share
    queues: an upload would wait for another thread's product.
    """
    choice = device_here()
    first = default_queue() if choice is None else queue_on(choice)
    kept = _kept.get(first.context, lambda: _Queues(first))
    return kept.up, kept.products


def _matrices(chunk: Any, axes: Axes, operand: int) -> Host:
    """The chunk as a stack of matrices: rows and K of x, K and columns of y."""
    plain = np.asarray(chunk)
    if getattr(chunk, "shape", None) != plain.shape or np.ma.is_masked(chunk):
        raise DTypeError(
            f"a chunk of {'xy'[operand]} is a {type(chunk).__name__}, not the array without masked elements "
            "that its Dask array promises; convert the chunks, x.map_blocks(...)"
        )
    stack, first, second = axes.of(operand)
    type_name(plain.dtype, f"a chunk of {'xy'[operand]}")
    if plain.ndim != len(stack) + len(first) + len(second):
        raise ShapeError(f"a chunk of {'xy'[operand]} has shape {plain.shape}; {_PROMISED}")
    turned = plain.transpose(*stack, *first, *second)
    lengths = [math.prod(_lengths(plain, part)) for part in (first, second)]
    native = turned.reshape(*_lengths(plain, stack), *lengths)
    return native if native.dtype.isnative else native.astype(native.dtype.newbyteorder("="))


def _check_lengths(axes: Axes, xs: list[list[Host]], ys: list[list[Host]]) -> None:
    """Raise ShapeError for chunks that do not fit each other: somebody told Dask wrong shapes."""
    (_, rows, k_of_x), (_, k_of_y, columns) = axes.of(0), axes.of(1)
    for row in xs:
        for x, line in zip(row, ys, strict=True):
            for y, above in zip(line, ys[0], strict=True):
                found = _lengths(x, rows), _lengths(x, k_of_x), _lengths(y, columns)
                if found != (_lengths(row[0], rows), _lengths(y, k_of_y), _lengths(above, columns)):
                    raise ShapeError(f"a chunk of x has shape {x.shape}, one of y {y.shape}; {_PROMISED}")


def _lengths(x: Host, part: Sequence[int]) -> list[int]:
    return [x.shape[i] for i in part]


def _shape(axes: Axes, xs: list[list[Host]], ys: list[list[Host]], stack: Sequence[int]) -> tuple[int, ...]:
    """The shape of the output chunk. Several chunks of rows or columns are neighbours on the first axis."""
    rows, columns = _lengths(xs[0][0], axes.rows), _lengths(ys[0][0], axes.columns)
    if rows:
        rows[0] = sum(row[0].shape[axes.rows[0]] for row in xs)
    if columns:
        columns[0] = sum(y.shape[axes.columns[0]] for y in ys[0])
    return (*stack, *rows, *columns)


def _together(chunks: list[Host], axis: int) -> list[Host]:
    """*chunks* as one if they are small: a copy on the host costs less than a product for each."""
    are_small = len(chunks) > 1 and max(x.nbytes for x in chunks) <= _SMALL
    return [np.concatenate(chunks, axis)] if are_small else chunks


def _edges(parts: list[cla.Array], axis: int) -> Iterator[tuple[int, int]]:
    """Where each of *parts*, side by side along *axis*, begins and ends."""
    return itertools.pairwise([0, *itertools.accumulate(x.shape[axis] for x in parts)])


def _on_device(queue: cl.CommandQueue, x: Host) -> cla.Array:
    """A copy of *x*. Matrices that are transposed in memory stay so: kernels read them as they are."""
    turned = not x.flags.c_contiguous and x.ndim == 2 and x.flags.f_contiguous
    dense = x.T if turned else np.ascontiguousarray(x)
    made: cla.Array = arrays.empty(queue, dense.shape, dense.dtype)
    _write(queue, made, dense)
    return made.T if turned else made


def _write(queue: cl.CommandQueue, target: Any, x: Host) -> None:
    if x.size:
        for event in staging.upload(queue, target.base_data, x.reshape(-1).view(np.uint8)):
            target.add_event(event)
