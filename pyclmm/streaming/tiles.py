"""A product cut into tiles of C: their order, the blocks that each reads, and the slots that keep these.

::

      B:      j = 0     1      2       A tile is a block of rows and columns of C. For each tile K is
            +------+------+------+     walked in chunks: A's block (rows x chunk) and B's (chunk x columns)
    A: i=0  |  0 ->|  1 ->|  2 v |     are on the device, and the tile stays there until its last chunk.
       i=1  |<- 5  |<- 4  |<- 3  |     A strip is one or more rows of tiles. Strips follow one another as an
            +------+------+------+     ox ploughs (serpentine), so that at each turn the blocks that were
                                       used last are used again.

Blocks stay in slots. If all are taken, the block that was used longest ago leaves (LRU). Nothing here talks
to a device; choice.py finds the sizes.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .. import fields

Index = tuple[int | slice, ...]
_COUNT = fields.integer(1, 1 << 62)
_COUNTS = dict.fromkeys(("batch", "m", "n", "strip", "a_slots", "b_slots", "out_slots"), _COUNT)
_BLOCKING = fields.record(
    {**_COUNTS, "k": fields.integer(0, 1 << 62), "by_columns": fields.one_of(True, False)}
)


class Span(NamedTuple):
    """A part of an axis."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class TiledProduct:
    """What is multiplied: sizes, bytes of an element, and batch shapes.

    ``a_size``, ``b_size``, ``out_size``, ``c_size``: bytes of an element as it is transferred; ``c_size``
    is 0 if no C is read. ``acc_size``: bytes of an element of a tile between two chunks. ``a_stack`` and
    ``b_stack`` broadcast to ``stack``. ``whole_k``: K must be one chunk.
    """

    m: int
    n: int
    k: int
    a_size: int
    b_size: int
    out_size: int
    acc_size: int
    c_size: int = 0
    stack: tuple[int, ...] = ()
    a_stack: tuple[int, ...] = ()
    b_stack: tuple[int, ...] = ()
    whole_k: bool = False

    @property
    def turned(self) -> TiledProduct:
        """The product C^T = B^T A^T."""
        return replace(
            self, m=self.n, n=self.m, a_size=self.b_size, b_size=self.a_size,
            a_stack=self.b_stack, b_stack=self.a_stack,
        )  # fmt: skip

    @property
    def matrices(self) -> int:
        """Matrices of the result."""
        return math.prod(self.stack)

    @property
    def is_empty(self) -> bool:
        """Whether the result has no elements."""
        return 0 in (self.m, self.n, self.matrices)

    @property
    def tile_size(self) -> int:
        """Bytes of a slot for a tile, for each element: the sum, what is sent, and C."""
        narrow = self.out_size if self.acc_size != self.out_size else 0
        return self.acc_size + narrow + self.c_size


@dataclass(frozen=True)
class Blocking:
    """The sizes of tiles and chunks, and the number of slots. ``batch``: whole matrices of the stack in a
    tile. ``m`` x ``n``: rows and columns of a tile. ``k``: length of a chunk. ``strip``: rows of tiles that
    are swept together; with ``by_columns`` columns of tiles, along the rows.
    """

    batch: int
    m: int
    n: int
    k: int
    strip: int
    a_slots: int
    b_slots: int
    out_slots: int
    by_columns: bool = False

    @property
    def turned(self) -> Blocking:
        """The blocking of the turned product."""
        return replace(
            self, m=self.n, n=self.m, a_slots=self.b_slots, b_slots=self.a_slots,
            by_columns=not self.by_columns,
        )  # fmt: skip

    def strip_of(self, tile: Tile) -> int:
        """The number of the strip that has *tile*, in its matrix."""
        swept, edge = (tile.columns, self.n) if self.by_columns else (tile.rows, self.m)
        return swept.start // (edge * self.strip)

    @classmethod
    def from_json(cls, content: Any) -> Blocking:
        """What JSON kept of the fields by name. Raises ArgumentError for anything else."""
        _BLOCKING("the sizes of tiles", content)
        return cls(**content)


@dataclass(frozen=True)
class Tile:
    """A part of the result. ``number``: its place in :func:`tiles`. ``z``: matrices of the flat stack."""

    number: int
    z: Span
    rows: Span
    columns: Span

    @property
    def elements(self) -> int:
        """Elements of the tile."""
        return self.z.length * self.rows.length * self.columns.length


def spans(length: int, step: int) -> list[Span]:
    """``range(length)`` in steps; the last one may be shorter."""
    return [Span(start, min(start + step, length)) for start in range(0, length, step)]


def tiles(product: TiledProduct, blocking: Blocking) -> list[Tile]:
    """Every tile once, in order."""
    if blocking.by_columns:
        turned = _swept(product.turned, blocking.turned)
        of_matrix = [(rows, columns) for columns, rows in turned]
    else:
        of_matrix = list(_swept(product, blocking))
    last = product.stack[-1] if product.stack else 1
    starts = range(0, product.matrices, max(1, last))  # a tile does not cross a row of the stack's last axis
    stacked = (Span(at + first, at + stop) for at in starts for first, stop in spans(last, blocking.batch))
    every = itertools.product(stacked, of_matrix)
    return [Tile(number, z, *part) for number, (z, part) in enumerate(every)]


def count(product: TiledProduct, blocking: Blocking) -> int:
    """How many tiles there are."""
    rows, columns, _ = counts(product, blocking)
    return rows * columns * batches(product, blocking)


def batches(product: TiledProduct, blocking: Blocking) -> int:
    """How many tiles there are at one place of a matrix: none crosses a row of the stack's last axis."""
    last = product.stack[-1] if product.stack else 1
    return -(-last // blocking.batch) * (product.matrices // max(1, last))


def _swept(product: TiledProduct, blocking: Blocking) -> Iterator[tuple[Span, Span]]:
    """(rows, columns) of the tiles of one matrix, strip by strip."""
    columns = spans(product.n, blocking.n)
    panels = spans(product.m, blocking.m)
    for number, start in enumerate(range(0, len(panels), blocking.strip)):
        strip, upward = panels[start : start + blocking.strip], False
        for column in columns[::-1] if number % 2 else columns:
            for rows in strip[::-1] if upward else strip:
                yield rows, column
            upward = not upward and len(strip) > 1


def chunks(product: TiledProduct, blocking: Blocking) -> list[Span]:
    """The chunks of K; an empty one if K is 0."""
    return spans(product.k, blocking.k) if product.k else [Span(0, 0)]


def counts(product: TiledProduct, blocking: Blocking) -> tuple[int, int, int]:
    """Rows and columns of tiles of one matrix, and chunks of K."""
    return (-(-product.m // blocking.m), -(-product.n // blocking.n), -(-product.k // max(1, blocking.k)))


def block_key(product: TiledProduct, operand: str, tile: Tile, chunk: int) -> Hashable:
    """Names the block of *operand* "a" or "b" that a chunk of a tile needs. Equal names: the same block."""
    own, across = (product.a_stack, tile.rows) if operand == "a" else (product.b_stack, tile.columns)
    return _index(product.stack, own, Span(tile.z.start, tile.z.start + 1)), across.start, chunk


class Slots:
    """Which block each of a fixed number of slots holds. The one used longest ago leaves first."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))[::-1]
        self._held: OrderedDict[Hashable, int] = OrderedDict()  # used last, last

    def find(self, key: Hashable) -> int | None:
        """The slot that holds *key*, which is used now, or None."""
        slot = self._held.get(key)
        if slot is not None:
            self._held.move_to_end(key)
        return slot

    def place(self, key: Hashable, locked: Collection[int]) -> int | None:
        """A slot for a new *key*: free, or used longest ago and not *locked*. None: all are locked."""
        if self._free:
            slot = self._free.pop()
        else:
            old = next((held for held, slot in self._held.items() if slot not in locked), None)
            if old is None:
                return None
            slot = self._held.pop(old)
        self._held[key] = slot
        return slot


def traffic(product: TiledProduct, blocking: Blocking) -> tuple[int, int]:
    """Bytes to the device, and from it, if one device walks all tiles in order."""
    every = tiles(product, blocking)
    loaded = sum(nbytes or 0 for _, _, blocks in walk(product, blocking, every) for _, nbytes in blocks)
    elements = sum(tile.elements for tile in every)
    return loaded + elements * product.c_size, elements * product.out_size


def walk(
    product: TiledProduct, blocking: Blocking, every: Iterable[Tile]
) -> Iterator[tuple[Tile, Span, list[tuple[int, int | None]]]]:
    """(tile, chunk, blocks) of each step of one device that computes these tiles in order. *blocks*: of A and
    of B the slot, and the bytes that are loaded into it; None if they are there.
    """
    held = {"a": Slots(blocking.a_slots), "b": Slots(blocking.b_slots)}
    parts = chunks(product, blocking)
    for tile in every:
        for number, chunk in enumerate(parts):
            blocks: list[tuple[int, int | None]] = []
            for name, nbytes in zip("ab", _block_bytes(product, tile, chunk.length), strict=True):
                key = block_key(product, name, tile, number)
                slot = held[name].find(key)
                if slot is None:
                    blocks.append((held[name].place(key, ()) or 0, nbytes))
                else:
                    blocks.append((slot, None))
            yield tile, chunk, blocks


def _block_bytes(product: TiledProduct, tile: Tile, length: int) -> tuple[int, int]:
    """Bytes of the blocks of A and of B that a chunk of *length* of *tile* needs."""
    z, rows, columns = tile.z.length, tile.rows.length, tile.columns.length
    a = (z if product.a_stack and product.a_stack[-1] != 1 else 1) * rows * length * product.a_size
    b = (z if product.b_stack and product.b_stack[-1] != 1 else 1) * length * columns * product.b_size
    return a, b


@dataclass(frozen=True)
class Region:
    """A block of a stored array: *index* of its batch axes, rows and columns."""

    index: Index
    rows: slice
    columns: slice

    def __str__(self) -> str:
        at = [f"{i.start}:{i.stop}" if isinstance(i, slice) else str(i) for i in self.where]
        stack = f"[{', '.join(at[:-2])}], " if self.index else ""
        return f"{stack}rows {at[-2]}, columns {at[-1]}"

    @property
    def where(self) -> Index:
        """What to slice the array by."""
        return (*self.index, self.rows, self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the block, without the axes that it has one place of, as a number."""
        return tuple(at.stop - at.start for at in self.where if isinstance(at, slice))

    @property
    def elements(self) -> int:
        """Elements of the block."""
        return math.prod(self.shape)

    def cut(self, axis: int, start: int, stop: int) -> Region:
        """From *start* to *stop* of this block along *axis*: -3 its matrices, -2 its rows, -1 its columns.
        One matrix of several is a block of two axes.
        """
        at, first = list(self.where), self.first[axis] + start
        is_one = axis == -3 and stop - start == 1
        at[axis] = first if is_one else slice(first, first + stop - start)
        *index, rows, columns = at
        return Region(tuple(index), rows, columns)  # type: ignore[arg-type]

    @property
    def first(self) -> tuple[int, ...]:
        """The place of the first element in the array."""
        return tuple(at.start if isinstance(at, slice) else at for at in self.where)

    def within(self, outer: Region) -> Index:
        """What to slice an array by that has the block *outer*, which has this one."""
        pairs = list(zip(self.where, outer.first, strict=True))[-len(outer.shape) :]
        return tuple(
            slice(at.start - first, at.stop - first) if isinstance(at, slice) else at - first
            for at, first in pairs
        )


def region(stack: tuple[int, ...], own: tuple[int, ...], z: Span, rows: Span, columns: Span) -> Region:
    """The block of an array with batch shape *own*, which broadcasts to *stack*, for the matrices *z* of
    that, flattened. *z* does not cross a row of the stack's last axis. One matrix has two axes.
    """
    return Region(_index(stack, own, z), slice(*rows), slice(*columns))


def _index(stack: tuple[int, ...], own: tuple[int, ...], z: Span) -> Index:
    if not own:
        return ()
    aligned = [int(at) for at in np.unravel_index(z.start, stack)[-len(own) :]]
    index: list[int | slice] = [0 if length == 1 else i for i, length in zip(aligned, own, strict=True)]
    if own[-1] != 1 and z.length > 1:
        index[-1] = slice(aligned[-1], aligned[-1] + z.length)
    return tuple(index)


def region_of(tile: Tile, stack: tuple[int, ...]) -> Region:
    """The region of the result that *tile* is."""
    return region(stack, stack, tile.z, tile.rows, tile.columns)
