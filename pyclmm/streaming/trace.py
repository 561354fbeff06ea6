"""When what happened in a streamed product: for benchmarks and their pictures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyopencl as cl


@dataclass(frozen=True)
class Happened:
    """*what* device number *device* did, from *start* to *stop* in seconds, and the bytes that it moved.

    ``what`` is "read" (from the operand into pinned memory or a block), "up", "product", "down" or "write".
    Times of "read", "write" and a host's "product" are the host's clock, the others the device's; each
    begins anywhere.
    """

    device: int
    what: str
    start: float
    stop: float
    nbytes: int


class Trace:
    """Collects what happens. Queues of a traced run need profiling."""

    def __init__(self) -> None:
        self._done: list[Happened] = []
        self._events: list[tuple[int, str, cl.Event, int]] = []
        self._products: dict[int, list[tuple[cl.Event, list[cl.Event]]]] = {}

    @contextmanager
    def host(self, device: int, what: str, nbytes: int) -> Iterator[None]:
        """Note the length of a block."""
        start = time.perf_counter()
        yield
        self._done.append(Happened(device, what, start, time.perf_counter(), nbytes))

    def transfer(self, device: int, what: str, event: cl.Event, nbytes: int) -> None:
        """Note a transfer, which :meth:`happened` asks for its times."""
        self._events.append((device, what, event, nbytes))

    def product(self, device: int, event: cl.Event, after: list[cl.Event]) -> None:
        """Note a product that *event* ends, and the transfers *after* which it began."""
        self._products.setdefault(device, []).append((event, list(after)))

    def happened(self) -> list[Happened]:
        """All that was noted. The commands must have ended."""
        ended = [
            Happened(device, what, event.profile.start * 1e-9, event.profile.end * 1e-9, nbytes)
            for device, what, event, nbytes in self._events
        ]
        return self._done + ended + self._timed_products()

    def _timed_products(self) -> list[Happened]:
        """A product is several launches, of which the last has an event: it begins when the one before it on
        its queue and its transfers have ended."""
        found = []
        for device, noted in self._products.items():
            before = 0.0
            for event, after in noted:
                stop = event.profile.end * 1e-9
                start = max([before, *(each.profile.end * 1e-9 for each in after)])
                found.append(Happened(device, "product", start or event.profile.start * 1e-9, stop, 0))
                before = stop
        return found
