"""Watch: how the host learns that a checked product on a queue was wrong, without waiting for it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyopencl as cl

from ..kernels.interface import VERDICT
from .status import has_ended

Words = np.ndarray[Any, np.dtype[np.int32]]
CALLS, NEXT, _RANGES = 0, 1, 10  # words of cl/verify/sums.h
_MOST = 2**31 - 1  # less the first of a range
Range = tuple[int, int]  # half-open


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.lock = threading.RLock()


_of_thread = _OfThread()


def own_lock() -> Any:
    """This thread holds it while it enqueues a checked product, and until it has heard of one that it waits
    for: then finish() of another thread neither comes between, nor hears in its place."""
    return _of_thread.lock


class Watch(ABC):
    """Sees the alarm that products of a binding set which were wrong, and calls *on_alarm* then. The thread
    that makes it enqueues them."""

    def __init__(self) -> None:
        self.on_alarm: Callable[[], Any] = lambda: None  # nobody listens yet
        self.lock: Any = own_lock()
        self.repairs = False  # whether its products were wrong before, in another binding

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether a product may have been wrong of which nobody has heard."""

    def begin(self) -> None:
        """Look before a product is enqueued. Others hear of none until :meth:`end`."""
        self.lock.acquire()
        try:
            self.look()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """The product was enqueued."""
        self.lock.release()

    @abstractmethod
    def look(self) -> None:
        """Call *on_alarm* if a product that has ended was wrong."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for all products so far; then as :meth:`look`. Any thread may call it."""

    @abstractmethod
    def taken(self) -> Words:
        """The words of cl/verify/ about wrong products since the last call of this; waits for all."""


def named(words: Words) -> tuple[Range, ...]:
    """The columns, rows and products that *words* name as wrong."""
    low_high = words[_RANGES : _RANGES + 6].reshape(3, 2).tolist()
    return tuple((_MOST - low, high) for low, high in low_high)


def cleared(verdict: Words) -> Words:
    """What a device's *verdict* becomes when its words were taken."""
    kept = verdict.copy()
    kept[2:] = 0
    return kept


class QueueWatch(Watch):
    """Reads the alarm of the products on a queue after each of them."""

    def __init__(self, queue: cl.CommandQueue, alarm: cl.Buffer, verdict: cl.Buffer) -> None:
        super().__init__()
        self._queue, self._alarm, self._verdict = queue, alarm, verdict
        self._seen = np.zeros(1, np.int32)
        self._reads: list[cl.Event] = []  # not seen to have ended; PyOpenCL waits for one that is dropped

    def follow(self, wait_for: list[cl.Event]) -> None:
        """A product was enqueued, which ends with *wait_for* where the queue is out of order."""
        self._reads.append(
            cl.enqueue_copy(self._queue, self._seen, self._alarm, is_blocking=False, wait_for=wait_for)
        )

    def skip(self, wait_for: list[cl.Event]) -> None:
        """After a call that failed with some launches enqueued, which end with *wait_for*: no other call gets
        its number, by which they have marked rows and columns."""
        with suppress(cl.Error):  # the device is lost
            words = {"byte_count": 4, "src_offset": 4 * NEXT, "dst_offset": 4 * CALLS}
            cl.enqueue_copy(self._queue, self._verdict, self._verdict, **words, wait_for=wait_for)

    @property
    def is_open(self) -> bool:
        return bool(self._reads) or bool(self._seen[0])

    def look(self) -> None:
        if self._reads:
            self._reads = [read for read in self._reads if not has_ended(read)]
        if self._seen[0]:
            self.on_alarm()

    def finish(self) -> None:
        for read in tuple(self._reads):  # without the lock: an event may wait for what its thread does next
            read.wait()
        with self.lock:
            self.look()

    def taken(self) -> Words:
        words = np.empty(VERDICT.nbytes // 4, np.int32)
        cl.enqueue_copy(self._queue, words, self._verdict, is_blocking=True, wait_for=self._reads)
        cl.enqueue_copy(self._queue, self._verdict, cleared(words), is_blocking=True)
        cl.enqueue_copy(self._queue, self._alarm, np.zeros(1, np.int32), is_blocking=True)
        self._reads.clear()
        self._seen[0] = 0
        return words
