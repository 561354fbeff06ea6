"""The graph of a product: which chunks each task gets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
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
        axes = product.axes
        kept = [x.chunks[i] for i in axes.rows[1:]] + [y.chunks[j] for j in axes.columns[1:]]
        kept += [_wider(x, y, pair) for pair in axes.stack]
        self._each = product.summed.itemsize * math.prod(max(k, default=1) for k in kept)
        self._of_row = _each(x, axes.rows)
        self._of_column = _each(y, axes.columns)

    def too_large(self, allowed: Limits, m: int, n: int) -> bool:
        """Whether the output chunk takes more than half of the device's share."""
        return bool(2 * m * n * self._each > allowed.device)

    def crowded(self, allowed: Limits, m: int, n: int) -> bool:
        """Whether it does, or the chunks of one step take more than a quarter: there are two steps."""
        step = m * self._of_row + n * self._of_column
        return self.too_large(allowed, m, n) or 4 * step > allowed.device or step > allowed.host


def _each(x: da.Array, kept: Shape) -> int:
    """The bytes of a chunk by the length of its first kept axis."""
    return max_nbytes(x) // max(1, max(x.chunks[kept[0]], default=1) if kept else 1)


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
    factors = (1, 1)
    if merge_chunks:
        factors = merged(
            rows[0] if rows else (1,),
            columns[0] if columns else (1,),
            math.prod(map(len, [*stacks, *rows[1:], *columns[1:]])),
            _TASKS_EACH * allowed.tasks,
            partial(TaskMemory(x, y, product).crowded, allowed),
        )
    deep = len(stacks)
    tall = runs(len(rows[0]), factors[0]) if rows else []
    wide = runs(len(columns[0]), factors[1]) if columns else []
    joined = [*stacks, *_joined(rows, tall), *_joined(columns, wide)]
    name = "pyclmm-" + tokenize(x, y, product, allowed, merge_chunks)
    tasks: dict[Key, Any] = {}
    for place in np.ndindex(*map(len, joined)):
        stack, row, column = place[:deep], place[deep : deep + len(rows)], place[deep + len(rows) :]
        xs = _Chunks(x, axes.of(0), [pair[0] for pair in axes.stack], stack)
        ys = _Chunks(y, axes.of(1), [pair[1] for pair in axes.stack], stack)
        sums = list(np.ndindex(*(len(x.chunks[i]) for i, _ in axes.sums)))
        lines = [(r, *row[1:]) for r in tall[row[0]]] if row else [()]
        others = [(c, *column[1:]) for c in wide[column[0]]] if column else [()]
        left = [[xs.key(line, s) for s in sums] for line in lines]
        right = [[ys.key(s, other) for other in others] for s in sums]
        sizes = [
            sum(xs.nbytes(line, s) for line in lines) + sum(ys.nbytes(s, other) for other in others)
            for s in sums
        ]
        _chain(tasks, (name, *place), product, left, right, list(_groups(sizes, allowed.host)))
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[x, y])
    meta: Any = np.empty((0,) * len(joined), product.dtype)
    return da.Array(graph, name, tuple(joined), meta=meta)


def _chain(
    tasks: dict[Key, Any],
    key: Key,
    product: Product,
    left: list[list[Key]],
    right: list[list[Key]],
    groups: list[range],
) -> None:
    """The tasks of one output chunk: each takes a group of the chunks of K, and the sum so far."""
    earlier: Key | None = None
    for number, group in enumerate(groups):
        last = number == len(groups) - 1
        own = key if last else (f"{key[0]}-part", *key[1:], number)
        xs = [line[group.start : group.stop] for line in left]
        tasks[own] = (multiply, product, xs, right[group.start : group.stop], earlier, last)
        earlier = own


def _groups(sizes: list[int], most: int) -> Iterator[range]:
    """Neighbouring chunks of K whose bytes are *most* at most, and at least one."""
    start, total = 0, 0
    for place, size in enumerate(sizes):
        if place > start and total + size > most:
            yield range(start, place)
            start, total = place, 0
        total += size
    yield range(start, len(sizes))


class _Chunks:
    """The chunks of an operand at one place of the stack, by their places along its two groups of axes."""

    def __init__(
        self, x: da.Array, axes: tuple[Shape, Shape, Shape], stack: list[int | None], place: Shape
    ) -> None:
        self._x = x
        self._of = axes
        self._fixed = {
            axis: 0 if len(x.chunks[axis]) == 1 else index
            for axis, index in zip(stack, place, strict=True)
            if axis is not None
        }

    def _place(self, first: Shape, second: Shape) -> list[int]:
        at = self._fixed | dict(zip((*self._of[1], *self._of[2]), (*first, *second), strict=True))
        return [at[axis] for axis in range(self._x.ndim)]

    def key(self, first: Shape, second: Shape) -> Key:
        return (self._x.name, *self._place(first, second))

    def nbytes(self, first: Shape, second: Shape) -> int:
        lengths = (chunks[i] for chunks, i in zip(self._x.chunks, self._place(first, second), strict=True))
        return int(math.prod(lengths) * self._x.dtype.itemsize)


def _joined(chunks: list[Shape], along: list[range]) -> list[Shape]:
    """The chunks of the result along the axes that one operand keeps: runs along the first of them."""
    if not chunks:
        return []
    return [tuple(sum(chunks[0][run.start : run.stop]) for run in along), *chunks[1:]]
