"""The graph of a product: which chunks each task gets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial, reduce
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from .axes import Axes, Shape, merged, runs
from .block import Product, multiply
from .workers import Limits

_TASKS_EACH = 4  # output chunks for each task that runs at once: then workers end at nearly the same time

Key = tuple[Any, ...]


def max_nbytes(x: da.Array) -> int:
    """The bytes of the largest chunk."""
    return int(math.prod(max(lengths, default=1) for lengths in x.chunks) * x.dtype.itemsize)


class TaskMemory:
    """What a task has on the device, by the edges of its output chunk: its first row and column axes."""

    def __init__(self, x: da.Array, y: da.Array, product: Product) -> None:
        stacks, rows, columns = chunks_of(x, y, product.axes)
        kept = (*stacks, *rows[1:], *columns[1:])
        self._each = product.summed.itemsize * math.prod(max(k, default=1) for k in kept)
        self._of_row = _each(x, rows)
        self._of_column = _each(y, columns)

    def too_large(self, allowed: Limits, m: int, n: int) -> bool:
        """Whether the output chunk takes more than half of the device's share."""
        return bool(2 * m * n * self._each > allowed.device)

    def crowded(self, allowed: Limits, m: int, n: int) -> bool:
        """Whether it does, or the chunks of one step take more than a quarter: there are two steps."""
        step = m * self._of_row + n * self._of_column
        return self.too_large(allowed, m, n) or 4 * step > allowed.device or step > allowed.host


def _each(x: da.Array, kept: list[Shape]) -> int:
    """The bytes of a chunk by the length of its first axis of those that are *kept*, in these chunks."""
    return max_nbytes(x) // max((1, *kept[0]) if kept else (1,))


def _wider(x: da.Array, y: da.Array, pair: tuple[int | None, int | None]) -> tuple[int, ...]:
    """The chunks of the result along an axis of stacks, where an operand of length 1 broadcasts."""
    i, j = pair
    if i is None or (j is not None and x.shape[i] == 1):
        return tuple(y.chunks[j])
    return tuple(x.chunks[i])


def chunks_of(x: da.Array, y: da.Array, axes: Axes) -> tuple[list[Shape], list[Shape], list[Shape]]:
    """The result's chunks along stacks, rows and columns, where none are merged."""
    stacks = [_wider(x, y, pair) for pair in axes.stack]
    return stacks, [x.chunks[i] for i in axes.rows], [y.chunks[j] for j in axes.columns]


def array_of(x: da.Array, y: da.Array, product: Product, allowed: Limits, merge_chunks: bool) -> da.Array:
    """The product, not computed yet: a task for each output chunk, or a chain where K is long."""
    axes = product.axes
    stacks, rows, columns = chunks_of(x, y, axes)
    first, second = (kept[0] if kept else (1,) for kept in (rows, columns))
    factors = (1, 1)
    if merge_chunks:
        others = math.prod(map(len, [*stacks, *rows[1:], *columns[1:]]))
        crowded = partial(TaskMemory(x, y, product).crowded, allowed)
        factors = merged(first, second, others, _TASKS_EACH * allowed.tasks, crowded)
    tall, wide = runs(len(first), factors[0]), runs(len(second), factors[1])
    joined = [*stacks, *_joined(rows, tall), *_joined(columns, wide)]
    name = "pyclmm-" + tokenize(x, y, product, allowed, merge_chunks)
    x_keys, x_nbytes = _chunks(x, axes, 0, stacks)
    y_keys, y_nbytes = _chunks(y, axes, 1, stacks)
    deep, end = len(stacks), len(stacks) + len(rows)
    tasks: dict[Key, Any] = {}
    for place in np.ndindex(*map(len, joined)):
        stack, row, column = place[:deep], place[deep:end] or (0,), place[end:] or (0,)
        left = (*stack, tall[row[0]], *row[1:])
        right = (*stack, slice(None), wide[column[0]], *column[1:])
        sizes = x_nbytes[left].sum(0) + y_nbytes[right].sum(1)
        groups = list(_groups(sizes.tolist(), allowed.host))
        _chain(tasks, (name, *place), product, x_keys[left].tolist(), y_keys[right].tolist(), groups)
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[x, y])
    meta: Any = np.empty((0,) * len(joined), product.dtype)
    return da.Array(graph, name, tuple(joined), meta=meta)


def _chain(
    tasks: dict[Key, Any],
    key: Key,
    product: Product,
    left: list[list[Key]],
    right: list[list[Key]],
    groups: list[slice],
) -> None:
    """The tasks of one output chunk: each takes a group of the chunks of K, and the sum so far."""
    earlier: Key | None = None
    for number, group in enumerate(groups):
        last = number == len(groups) - 1
        own = key if last else (f"{key[0]}-part", *key[1:], number)
        tasks[own] = (multiply, product, [line[group] for line in left], right[group], earlier, last)
        earlier = own


def _groups(sizes: list[int], most: int) -> Iterator[slice]:
    """Neighbouring chunks of K whose bytes are *most* at most, and at least one."""
    start, total = 0, 0
    for place, size in enumerate(sizes):
        if place > start and total + size > most:
            yield slice(start, place)
            start, total = place, 0
        total += size
    yield slice(start, len(sizes))


def _chunks(x: da.Array, axes: Axes, operand: int, stacks: list[Shape]) -> tuple[Any, Any]:
    """The keys of the chunks of x (*operand* 0) or y (1), and their bytes, by place: in the stack, then rows
    and sums, or sums and columns. All sums are one axis; no rows, or no columns, are an axis of one.
    """
    own, *others = axes.of(operand)
    lengths = [1 if pair[operand] is None else x.numblocks[pair[operand]] for pair in axes.stack]
    kept = [x.numblocks[axis] for axis in others[operand]] or [1]
    lengths += [*kept, -1] if operand == 0 else [-1, *kept]

    def laid(chunks: Any) -> Any:
        turned = chunks.transpose(*own, *others[0], *others[1]).reshape(lengths)
        return np.broadcast_to(turned, (*map(len, stacks), *turned.shape[len(stacks) :]))

    keys = np.empty(x.numblocks, object)
    for place in np.ndindex(*x.numblocks):
        keys[place] = (x.name, *place)
    return laid(keys), laid(reduce(np.multiply.outer, x.chunks, np.int64(x.dtype.itemsize)))


def _joined(chunks: list[Shape], along: list[slice]) -> list[Shape]:
    """The chunks of the result along the axes that one operand keeps: runs along the first of them."""
    if not chunks:
        return []
    return [tuple(sum(chunks[0][run]) for run in along), *chunks[1:]]
