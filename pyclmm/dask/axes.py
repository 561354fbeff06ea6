"""Which axes of two arrays are stacked, kept and summed, and which of their chunks a task gets. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import ShapeError
from ..problem.axes import summed_axes

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Axes:
    """The roles of the axes of x and y. Those of the result are stack, then rows, then columns.

    ``stack``: an axis of x and one of y, or None where an operand has none. ``rows``: of x alone.
    ``columns``: of y alone. ``sums``: pairs of an axis of x and one of y.
    """

    stack: tuple[tuple[int | None, int | None], ...]
    rows: Shape
    columns: Shape
    sums: tuple[tuple[int, int], ...]

    def of(self, operand: int) -> tuple[Shape, Shape, Shape]:
        """The axes of x (0) or y (1): stack, then rows and sums of x, or sums and columns of y."""
        stack = tuple(pair[operand] for pair in self.stack)
        own = tuple(axis for axis in stack if axis is not None)
        sums = tuple(pair[operand] for pair in self.sums)
        return (own, self.rows, sums) if operand == 0 else (own, sums, self.columns)


def of_matmul(x: Shape, y: Shape) -> Axes:
    """The axes of a product as numpy.matmul defines it. Raises ShapeError if the shapes do not multiply."""
    for name, shape in (("x", x), ("y", y)):
        if not shape:
            raise ShapeError(f"{name} has shape (); a product needs one dimension or more: multiply by `*`")
    k = len(y) - 1 if len(y) == 1 else len(y) - 2
    if x[-1] != y[k]:
        raise ShapeError(f"x has shape {x} and y {y}: the {x[-1]} columns of x need as many rows of y")
    deep = max(len(x), len(y), 2) - 2
    stack = []
    for place in range(-deep - 2, -2):
        pair = tuple(place + len(s) if place + len(s) >= 0 else None for s in (x, y))
        lengths = {s[axis] for s, axis in zip((x, y), pair, strict=True) if axis is not None}
        if len(lengths - {1}) > 1:
            raise ShapeError(f"x has shape {x} and y {y}: their stacks do not broadcast")
        stack.append((pair[0], pair[1]))
    rows = () if len(x) == 1 else (len(x) - 2,)
    columns = () if len(y) == 1 else (len(y) - 1,)
    return Axes(tuple(stack), rows, columns, ((len(x) - 1, k),))


def of_tensordot(x: Shape, y: Shape, axes: Any) -> Axes:
    """The axes of numpy.tensordot. Raises ShapeError, AxisError, DTypeError and ArgumentError."""
    left, right = summed_axes({"x": len(x), "y": len(y)}, axes)
    for i, j in zip(left, right, strict=True):
        if x[i] != y[j]:
            raise ShapeError(f"x has shape {x} and y {y}: axis {i} of x and axis {j} of y differ in length")
    rows = tuple(i for i in range(len(x)) if i not in left)
    columns = tuple(j for j in range(len(y)) if j not in right)
    return Axes((), rows, columns, tuple(zip(left, right, strict=True)))


def runs(number: int, length: int) -> list[slice]:
    """*number* chunks in runs of *length*; the last may be shorter."""
    return [slice(start, start + length) for start in range(0, number, length)]


def divided(lengths: Shape, most: int) -> Shape:
    """Chunks of *most* elements or fewer: each longer one in equal parts."""
    found: list[int] = []
    for length in lengths:
        parts = max(1, math.ceil(length / most))
        found += [length * (i + 1) // parts - length * i // parts for i in range(parts)]
    return tuple(found)


def halved(edges: tuple[int, int], too_large: Any) -> tuple[int, int]:
    """Both edges of a block, the longer one halved until the block is not *too_large*."""
    m, n = edges
    while too_large(m, n) and max(m, n) > 1:
        m, n = (-(-m // 2), n) if m >= n else (m, -(-n // 2))
    return m, n


def merged(rows: Shape, columns: Shape, others: int, least: int, too_large: Any) -> tuple[int, int]:
    """How many neighbouring chunks of rows and of columns one output chunk has.

    Larger blocks move fewer bytes, so the shorter edge doubles while *least* output chunks stay (there are
    *others* of each block, by the other axes) and the block is not *too_large*.
    """
    factors = [1, 1]
    numbers = (len(rows), len(columns))
    growing = {side for side in (0, 1) if numbers[side] > 1}
    while growing:
        edges = [max(side[:factor]) * factor for side, factor in zip((rows, columns), factors, strict=True)]
        side = min(growing, key=lambda s: edges[s])
        grown = [f * 2 if s == side else f for s, f in enumerate(factors)]
        blocks = others * math.prod(-(-n // f) for n, f in zip(numbers, grown, strict=True))
        sums = [
            max(sum(lengths[run]) for run in runs(len(lengths), factor))
            for lengths, factor in zip((rows, columns), grown, strict=True)
        ]
        if blocks < least or too_large(*sums) or factors[side] >= numbers[side]:
            growing.discard(side)
        else:
            factors = grown
    return factors[0], factors[1]
