"""Which part of a stored operand a step of a tile reads, and which part of the result a tile is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .tiles import Tile

Span = tuple[int, int]  # start and stop
Index = tuple[int | slice, ...]


@dataclass(frozen=True)
class Part:
    """A block of a stored array: *index* of its batch axes, rows and columns, and the block's shape."""

    index: Index
    rows: slice
    columns: slice
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def rows_of(self, start: int, stop: int) -> Part:
        """The rows from *start* to *stop* of this block, which is one matrix."""
        first = self.rows.start
        rows = slice(first + start, first + stop)
        return Part(self.index, rows, self.columns, (stop - start, self.shape[-1]))

    def columns_of(self, start: int, stop: int) -> Part:
        """The columns from *start* to *stop* of this block, which is one matrix."""
        first = self.columns.start
        columns = slice(first + start, first + stop)
        return Part(self.index, self.rows, columns, (self.shape[-2], stop - start))

    def matrices(self) -> list[Part]:
        """The matrices of a block of several; the block itself if it is one matrix."""
        if len(self.shape) == 2:
            return [self]
        last = self.index[-1]
        if not isinstance(last, slice):
            return [self]
        return [
            Part((*self.index[:-1], z), self.rows, self.columns, self.shape[-2:])
            for z in range(last.start, last.stop)
        ]


def part(stack: tuple[int, ...], own: tuple[int, ...], z: Span, rows: Span, columns: Span) -> Part:
    """The block of an array with batch shape *own* for the matrices *z* of the flattened *stack*.

    *own* broadcasts to *stack*. *z* does not cross a row of the stack's last axis. A block of one matrix has
    two axes.
    """
    index = _index(stack, own, z)
    count = (index[-1].stop - index[-1].start,) if index and isinstance(index[-1], slice) else ()
    shape = (*count, rows[1] - rows[0], columns[1] - columns[0])
    return Part(index, slice(*rows), slice(*columns), shape)


def _index(stack: tuple[int, ...], own: tuple[int, ...], z: Span) -> Index:
    if not own:
        return ()
    place, at = [], z[0]
    for length in reversed(stack):
        place.append(at % length)
        at //= length
    place.reverse()
    aligned = place[len(stack) - len(own) :]
    index: list[int | slice] = [0 if length == 1 else i for i, length in zip(aligned, own, strict=True)]
    if own[-1] != 1 and z[1] - z[0] > 1:
        index[-1] = slice(aligned[-1], aligned[-1] + z[1] - z[0])
    return tuple(index)


def of_tile(tile: Tile, stack: tuple[int, ...]) -> Part:
    """The part of the result that *tile* is."""
    return part(stack, stack, tile.z, tile.rows, tile.columns)
