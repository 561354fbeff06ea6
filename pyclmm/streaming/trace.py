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
    Times of "read" and "write" are the host's clock, the others the device's; each begins anywhere.
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

    @contextmanager
    def host(self, device: int, what: str, nbytes: int) -> Iterator[None]:
        """Note the length of a block."""
        start = time.perf_counter()
        yield
        self._done.append(Happened(device, what, start, time.perf_counter(), nbytes))

    def command(self, device: int, what: str, event: cl.Event, nbytes: int = 0) -> None:
        """Note a command, which :meth:`happened` asks for its times."""
        self._events.append((device, what, event, nbytes))

    def happened(self) -> list[Happened]:
        """All that was noted. The commands must have ended."""
        ended = [
            Happened(device, what, event.profile.start * 1e-9, event.profile.end * 1e-9, nbytes)
            for device, what, event, nbytes in self._events
        ]
        return self._done + ended
