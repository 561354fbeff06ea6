"""Watch: how the host learns that a checked product on a queue was wrong, without waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from ..kernels.verification import ALARM, VERDICT
from .status import has_ended

Words = np.ndarray[Any, np.dtype[np.int32]]


def _ignore() -> None:
    """Before somebody listens."""


class Watch:
    """Reads the alarm of a binding's products after each of them. *on_alarm* is called once it was read."""

    def __init__(self, queue: cl.CommandQueue, alarm: cl.Buffer, verdict: cl.Buffer) -> None:
        self._queue, self._alarm, self._verdict = queue, alarm, verdict
        self._seen = np.zeros(1, np.int32)
        self._reads: list[cl.Event] = []  # not seen to have ended; PyOpenCL waits for one that is dropped
        self.on_alarm: Callable[[], None] = _ignore

    def follow(self, wait_for: list[cl.Event]) -> None:
        """A product was enqueued, which ends with *wait_for* where the queue is out of order."""
        self._reads.append(
            cl.enqueue_copy(self._queue, self._seen, self._alarm, is_blocking=False, wait_for=wait_for)
        )

    @property
    def is_open(self) -> bool:
        """Whether a product may have been wrong of which nobody has heard."""
        return bool(self._reads) or bool(self._seen[0])

    def look(self) -> None:
        """Call *on_alarm* if a product that has ended was wrong."""
        if self._reads:
            self._reads = [read for read in self._reads if not has_ended(read)]
            if self._seen[0]:
                self.on_alarm()

    def finish(self) -> None:
        """Wait for all products so far; then as :meth:`look`."""
        for read in self._reads:
            read.wait()
        self._reads.clear()
        if self._seen[0]:
            self.on_alarm()

    def taken(self) -> Words:
        """The words of cl/verify/ about the wrong products since the last call of this; waits for all."""
        words = np.empty(VERDICT.nbytes // 4, np.int32)
        cl.enqueue_copy(self._queue, words, self._verdict, is_blocking=True, wait_for=self._reads)
        kept = words.copy()
        kept[2:] = 0
        cl.enqueue_copy(self._queue, self._verdict, kept, is_blocking=True)
        cl.enqueue_copy(self._queue, self._alarm, np.zeros(1, np.int32), is_blocking=True)
        self._reads.clear()
        self._seen[0] = 0
        return words


def watch_of(queue: cl.CommandQueue, buffers: dict[str, Any]) -> Watch | None:
    """The watch of a binding that keeps these *buffers*, by symbol, if its products are checked."""
    alarm = buffers.get(ALARM.symbol)
    return None if alarm is None else Watch(queue, alarm, buffers[VERDICT.symbol])
