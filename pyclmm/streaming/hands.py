"""Hands: the threads of one lane, kept for the next run.

To start threads takes a millisecond, and kernel objects belong to a thread: one that multiplied before has
them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_CPUS = os.cpu_count() or 1
_READERS = max(
    2, min(8, _CPUS - 1)
)  # threads that fill blocks; 6 to 14 were alike on 16 cores beside an H200
_WRITERS = max(2, min(12, _CPUS * 3 // 4))  # that empty tiles: 12 bring 45 GB/s to arrays there, 8 bring 37
_lock = threading.Lock()
_idle: list[Hands] = []


class Hands:
    """Thread pools of one lane: ``readers``, ``writers``, ``loops`` for three loops, one ``multiplier``."""

    def __init__(self) -> None:
        self.readers = ThreadPoolExecutor(_READERS, thread_name_prefix="pyclmm-read")
        self.writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="pyclmm-write")
        self.loops = ThreadPoolExecutor(3, thread_name_prefix="pyclmm-loop")
        self.multiplier = ThreadPoolExecutor(1, thread_name_prefix="pyclmm-multiply")

    def end(self) -> None:
        """End the threads when they have done what they do. Drop what they have not begun."""
        for pool in (self.readers, self.writers, self.loops, self.multiplier):
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def hands() -> Iterator[Hands]:
    """Hands for the length of a block, which nobody else has. All that was given to them must have ended.

    After an error they end: a pool whose thread the system refused still has the task, and would do it later.
    """
    with _lock:
        found = _idle.pop() if _idle else None
    if found is None:
        found = Hands()
    try:
        yield found
    except BaseException:
        found.end()
        raise
    with _lock:
        _idle.append(found)


def release() -> None:
    """End the threads that no run uses."""
    with _lock:
        ended, _idle[:] = list(_idle), []
    for each in ended:
        each.end()
