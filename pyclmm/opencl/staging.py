"""Transfers between host memory and a device that does not share it, in chunks through pinned memory.

A driver copies pageable memory through one pinned buffer, chunk after chunk, with one thread. Here two pinned
buffers take turns, so that the host fills one while the device reads the other. Several threads fill a
buffer, because one thread copies slower than the bus.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl

from .queues import PerThread, at_release

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

CHUNK = 16 << 20  # bytes; 8 MiB were slower on an H200, and more would only use more pinned memory
DIRECT = 1 << 20  # bytes; up to this size a plain transfer is as fast
_BUFFERS = 2
_BYTES_PER_THREAD = 1 << 20  # the fewest bytes for which a thread pays
_THREADS = max(1, min(6, (os.cpu_count() or 1) - 1))


class _Staging:
    """Two pinned buffers of one context, always mapped, and the last transfer of each."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        access: Any = cl.map_flags.READ | cl.map_flags.WRITE
        uint8: Any = np.dtype(np.uint8)
        self.buffers: list[Bytes] = []
        self.busy: list[cl.Event | None] = [None] * _BUFFERS
        for _ in range(_BUFFERS):
            pinned = cl.Buffer(queue.context, flags, CHUNK)
            mapped, _ = cl.enqueue_map_buffer(queue, pinned, access, 0, (CHUNK,), uint8, is_blocking=True)
            self.buffers.append(mapped)

    def free_buffer(self, number: int) -> Bytes:
        """The buffer of chunk *number*, after its last transfer has ended."""
        event = self.busy[number % _BUFFERS]
        if event is not None:
            event.wait()
        return self.buffers[number % _BUFFERS]


# By context, and of one only, because pinned memory is scarce. A transfer that is running keeps what it uses:
# PyOpenCL's event of a transfer keeps its host memory alive, and a call keeps the events until it ends.
_kept: PerThread[_Staging] = PerThread(1)
at_release(_kept.clear)


def _staging(queue: cl.CommandQueue) -> _Staging:
    return _kept.get(queue.context, lambda: _Staging(queue))


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """The threads that copy; a forked process makes its own."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="pyclmm-copy")


def _copy(target: Bytes, source: Bytes) -> None:
    """Copy by several threads; NumPy releases the interpreter's lock while it copies."""
    threads = min(_THREADS, target.nbytes // _BYTES_PER_THREAD)
    if threads < 2:
        np.copyto(target, source)
        return
    edges = [target.nbytes * i // threads for i in range(threads + 1)]
    pieces = [(target[i:j], source[i:j]) for i, j in itertools.pairwise(edges)]
    pool = _pool(os.getpid())
    try:
        list(pool.map(lambda piece: np.copyto(*piece), pieces))
    except (RuntimeError, CancelledError):  # the system refuses a thread, or the interpreter ends
        _pool.cache_clear()  # another thread's call may have ended the pool, too
        pool.shutdown(cancel_futures=True)  # what has not begun would overwrite a later transfer's bytes
        np.copyto(target, source)


def _chunks(nbytes: int) -> Iterator[tuple[int, int, int]]:
    for number, start in enumerate(range(0, nbytes, CHUNK)):
        yield number, start, min(start + CHUNK, nbytes)


def upload(queue: cl.CommandQueue, buffer: cl.Buffer, memory: Bytes) -> list[cl.Event]:
    """Copy *memory* into *buffer*. Returns the events that end it; *memory* may be changed at once."""
    if memory.nbytes <= DIRECT:
        return [cl.enqueue_copy(queue, buffer, memory, is_blocking=True)]
    staging = _staging(queue)
    events = []
    for number, start, stop in _chunks(memory.nbytes):
        pinned = staging.free_buffer(number)[: stop - start]
        _copy(pinned, memory[start:stop])
        event = cl.enqueue_copy(queue, buffer, pinned, dst_offset=start, is_blocking=False)
        staging.busy[number % _BUFFERS] = event
        events.append(event)
    return events


def download(queue: cl.CommandQueue, memory: Bytes, buffer: cl.Buffer, after: list[cl.Event]) -> None:
    """Copy *buffer* into *memory* after the events *after*. It is complete on return."""
    if memory.nbytes <= DIRECT:
        cl.enqueue_copy(queue, memory, buffer, wait_for=after, is_blocking=True)
        return
    staging = _staging(queue)
    pending: list[tuple[Bytes, Bytes, cl.Event]] = []
    for number, start, stop in _chunks(memory.nbytes):
        if len(pending) == _BUFFERS:
            _collect(pending.pop(0))
        pinned = staging.free_buffer(number)[: stop - start]
        event = cl.enqueue_copy(queue, pinned, buffer, src_offset=start, wait_for=after, is_blocking=False)
        staging.busy[number % _BUFFERS] = event
        queue.flush()
        pending.append((memory[start:stop], pinned, event))
    for chunk in pending:
        _collect(chunk)


def _collect(chunk: tuple[Bytes, Bytes, cl.Event]) -> None:
    target, pinned, event = chunk
    event.wait()
    _copy(target, pinned)
