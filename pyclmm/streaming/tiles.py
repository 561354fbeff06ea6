"""A product cut into tiles of C, in the order in which they are computed, and the slots that keep blocks.

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

import math
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

Span = tuple[int, int]  # start and stop


@dataclass(frozen=True)
class Product:
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
    def turned(self) -> Product:
        """The product C^T = B^T A^T."""
        return replace(
            self,
            m=self.n,
            n=self.m,
            a_size=self.b_size,
            b_size=self.a_size,
            a_stack=self.b_stack,
            b_stack=self.a_stack,
        )

    @property
    def matrices(self) -> int:
        """Matrices of the result."""
        return math.prod(self.stack)

    @property
    def tile_size(self) -> int:
        """Bytes of a slot for a tile, for each element: the sum, what is sent, and C."""
        narrow = self.out_size if self.acc_size != self.out_size else 0
        return self.acc_size + narrow + self.c_size


@dataclass(frozen=True)
class Blocking:
    """The sizes of tiles and chunks, and the number of slots.

    ``batch``: matrices of the stack in a tile, which then has whole matrices. ``m`` x ``n``: rows and columns
    of a tile. ``k``: length of a chunk. ``strip``: rows of tiles that are swept together; with ``by_columns``
    columns of tiles, which are swept along the rows.
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
            self,
            m=self.n,
            n=self.m,
            a_slots=self.b_slots,
            b_slots=self.a_slots,
            by_columns=not self.by_columns,
        )

    def to_json(self) -> dict[str, int]:
        """The fields by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Blocking:
        """What :meth:`to_json` gave. Raises ValueError for anything else."""
        names = [field.name for field in fields(cls)]
        if not isinstance(content, Mapping) or sorted(content) != sorted(names):
            raise ValueError(f"the sizes of tiles are {content!r}; they have the fields {', '.join(names)}")
        for name, value in content.items():
            wanted = bool if name == "by_columns" else int
            if type(value) is not wanted or value < (0 if name in ("k", "by_columns") else 1):
                raise ValueError(f"the sizes of tiles have {name} = {value!r}")
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
        return math.prod(stop - start for start, stop in (self.z, self.rows, self.columns))


def spans(length: int, step: int) -> list[Span]:
    """``range(length)`` in steps; the last one may be shorter."""
    return [(start, min(start + step, length)) for start in range(0, length, step)] if length else []


def tiles(product: Product, blocking: Blocking) -> list[Tile]:
    """Every tile once, in order."""
    found: list[Tile] = []
    for z in _batches(product, blocking):
        for rows, columns in _ordered(product, blocking):
            found.append(Tile(len(found), z, rows, columns))
    return found


def _batches(product: Product, blocking: Blocking) -> Iterator[Span]:
    """The matrices of each tile. They do not cross a row of the stack's last axis."""
    last = product.stack[-1] if product.stack else 1
    for start in range(0, product.matrices, max(1, last)):
        for first, stop in spans(last, blocking.batch):
            yield start + first, start + stop


def _ordered(product: Product, blocking: Blocking) -> Iterator[tuple[Span, Span]]:
    """(rows, columns) of the tiles of one matrix, in order."""
    if not blocking.by_columns:
        return _swept(product, blocking)
    return ((rows, columns) for columns, rows in _swept(product.turned, blocking.turned))


def _swept(product: Product, blocking: Blocking) -> Iterator[tuple[Span, Span]]:
    """(rows, columns) of the tiles of one matrix, strip by strip."""
    columns = spans(product.n, blocking.n)
    panels = spans(product.m, blocking.m)
    upward = False
    for number, start in enumerate(range(0, len(panels), blocking.strip)):
        strip = panels[start : start + blocking.strip]
        for column in columns[::-1] if number % 2 else columns:
            for rows in strip[::-1] if upward else strip:
                yield rows, column
            upward = not upward and len(strip) > 1
        upward = False


def chunks(product: Product, blocking: Blocking) -> list[Span]:
    """The chunks of K."""
    return spans(product.k, blocking.k) if blocking.k else []


def a_key(product: Product, blocking: Blocking, tile: Tile, chunk: int) -> Hashable:
    """Names the block of A that a chunk of a tile needs. Equal names: the same block."""
    return _own(product.stack, product.a_stack, tile.z[0]), tile.rows[0], chunk


def b_key(product: Product, blocking: Blocking, tile: Tile, chunk: int) -> Hashable:
    """Names the block of B."""
    return _own(product.stack, product.b_stack, tile.z[0]), tile.columns[0], chunk


def _own(stack: tuple[int, ...], own: tuple[int, ...], z: int) -> int:
    """The place in an operand with batch shape *own* of matrix *z* of the flattened *stack*."""
    place, step = 0, 1
    for length, its in zip(reversed(stack), reversed(own), strict=False):
        place += (z % length if its != 1 else 0) * step
        z //= length
        step *= its
    return place


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
        """A slot for a new *key*: a free one, or the one used longest ago of those not *locked*. None: all
        are locked."""
        if self._free:
            slot = self._free.pop()
        else:
            old = next((held for held, slot in self._held.items() if slot not in locked), None)
            if old is None:
                return None
            slot = self._held.pop(old)
        self._held[key] = slot
        return slot

    def forget(self, key: Hashable) -> None:
        """Free the slot of *key*, if it has one."""
        slot = self._held.pop(key, None)
        if slot is not None:
            self._free.append(slot)


@dataclass(frozen=True)
class Traffic:
    """What one device moves: bytes to it (``up``) and from it, and how many blocks of A and B."""

    up: int
    down: int
    a_loads: int
    b_loads: int


def traffic(product: Product, blocking: Blocking) -> Traffic:
    """What is moved if one device walks all tiles in order."""
    slots = Slots(blocking.a_slots), Slots(blocking.b_slots)
    loads, up = [0, 0], 0
    parts = chunks(product, blocking)
    every = tiles(product, blocking)
    for tile in every:
        for chunk, (start, stop) in enumerate(parts):
            keys = a_key(product, blocking, tile, chunk), b_key(product, blocking, tile, chunk)
            for which, nbytes in enumerate(block_bytes(product, tile, stop - start)):
                if slots[which].find(keys[which]) is None:
                    slots[which].place(keys[which], ())
                    loads[which] += 1
                    up += nbytes
    elements = sum(tile.elements for tile in every)
    return Traffic(up + elements * product.c_size, elements * product.out_size, *loads)


def block_bytes(product: Product, tile: Tile, length: int) -> tuple[int, int]:
    """Bytes of the blocks of A and of B that a chunk of *length* of *tile* needs."""
    z = tile.z[1] - tile.z[0]
    rows, columns = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0]
    a = (z if product.a_stack and product.a_stack[-1] != 1 else 1) * rows * length * product.a_size
    b = (z if product.b_stack and product.b_stack[-1] != 1 else 1) * length * columns * product.b_size
    return a, b
