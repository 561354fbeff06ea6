"""What the lanes have in common: their interface, and blocks on their way.

A lane brings the blocks of a streamed product to one device, has them multiplied there, and brings the tiles
back. Reading, writing and copying are done by threads of a pool, because NumPy and files release the
interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyopencl as cl
from numpy.typing import NDArray

from .blocks import Part
from .tiles import Tile
from .trace import Trace

Write = Callable[[Part, NDArray[Any]], None]  # takes a part of the result


@dataclass
class Block:
    """A block on its way to a lane, or there: *ready* futures give the events that end its transfers."""

    array: Any
    ready: list[Future[Any]] = field(default_factory=list)

    def events(self) -> list[cl.Event]:
        """The events to wait for before its first use; waits until its copies are enqueued. Raises what
        reading it raised."""
        done, self.ready = self.ready, []
        return [event for each in done if (event := each.result()) is not None]


class Lane(Protocol):
    """One device's part in a streamed product. ``name`` is the device's."""

    name: str

    def load(self, operand: str, slot: int, part: Part) -> Block:
        """Begin to bring the block *part* of "a" or "b" into *slot*."""

    def begin(self, tile: Tile, slot: int) -> None:
        """Make the tile slot ready for *tile*; begin to load its part of C if there is one."""

    def multiply(self, tile: Tile, chunk: int, a: Block, b: Block, slots: tuple[int, int, int]) -> None:
        """Multiply two blocks into a tile; *slots*: those of a, b and the tile."""

    def deliver(self, tile: Tile, slot: int, write: Write) -> None:
        """Pass the finished tile on to *write*, in parts. It is complete on return."""

    def close(self, failed: bool) -> None:
        """Wait until the device uses nothing of this lane, and free what it has."""


def end_all(futures: list[Future[Any]]) -> None:
    """Cancel what has not begun, and wait for the rest."""
    for each in futures:
        each.cancel()
    wait(futures)


class _Unnoted:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


_UNNOTED = _Unnoted()


def noted(trace: Trace | None, number: int, what: str, nbytes: int) -> Any:
    """A block whose length *trace* notes, if there is one."""
    return _UNNOTED if trace is None else trace.host(number, what, nbytes)
