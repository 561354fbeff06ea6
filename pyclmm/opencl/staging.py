"""Transfers between host memory and a device that does not share it, in chunks through pinned memory.

A driver copies pageable memory through one pinned buffer, chunk after chunk, with one thread. Here the pinned
buffers of a ring take turns, so that the host fills one while the device reads another. Several threads fill
a buffer, because one thread copies slower than the bus.

Pinned memory is scarce and slow to allocate, so a ring that is not in use is kept for the next transfer.
"""

from __future__ import annotations

import _thread
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pyopencl as cl

from . import clock
from .devices import device_info
from .queues import at_loss, at_release
from .status import has_ended, out_of_memory, rejected

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
T = TypeVar("T")

DIRECT = 1 << 20  # bytes; up to this size a plain transfer is as fast
# Two buffers of this many bytes for a transfer: 8 MiB were slower on an H200, and more would only use more
# pinned memory.
CHUNK = 16 << 20
_CHUNKS = 2
# Bytes of a buffer for products in tiles, whose blocks are moved by many threads: each fills one while the
# device reads others. Smaller ones cost more of the interpreter's time: with 4 MiB a product of 8192 cubed
# took 48 ms on an H200, with 8 MiB 40.
PIECE = 8 << 20
_PIECES = 16
_BYTES_PER_THREAD = 1 << 20  # the fewest bytes for which a thread pays
_THREADS = max(1, min(6, (os.cpu_count() or 1) - 1))

_lock = threading.RLock()
_idle: dict[tuple[cl.Context, int], list[PinnedRing]] = {}  # by context and bytes of a buffer


class PinnedRing:
    """*count* pinned buffers of *nbytes* in the context of *on*, always mapped. Any thread may borrow one."""

    def __init__(self, on: cl.CommandQueue, count: int, nbytes: int) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        access: Any = cl.map_flags.READ | cl.map_flags.WRITE
        uint8: Any = np.dtype(np.uint8)
        self.key = on.context, nbytes
        self._free: SimpleQueue[tuple[Bytes, cl.Event | None]] = SimpleQueue()
        self._thread = threading.get_ident()  # of the last transfer, and what ends it
        self._end: cl.Event | None = None
        for _ in range(count):
            try:
                pinned = cl.Buffer(on.context, flags, nbytes)
                mapped, _ = cl.enqueue_map_buffer(on, pinned, access, 0, (nbytes,), uint8, is_blocking=True)
            except cl.Error as error:
                raise out_of_memory(nbytes, device_info(on.device), "pinned memory", error) from error
            self._free.put((mapped, None))

    def borrow(self) -> Bytes:
        """The buffer that was given back first, after its last transfer. Waits for one."""
        memory, event = self._free.get()
        try:
            if event is not None:
                event.wait()
        except BaseException:
            self._free.put((memory, None))
            raise
        return memory

    def give_back(self, memory: Bytes, event: cl.Event | None = None) -> None:
        """End a loan; *event* ends the transfer that still uses the buffer."""
        self._thread, self._end = threading.get_ident(), event
        self._free.put((memory, event))

    def is_free(self) -> bool:
        """Whether this thread need not wait for a transfer of another one, whose queue may be held up."""
        return self._end is None or self._thread == threading.get_ident() or has_ended(self._end)


def taken(on: cl.CommandQueue, count: int = _PIECES, nbytes: int = PIECE) -> PinnedRing:
    """A ring of the context of *on*, which nobody else has. Raises DeviceMemoryError, DeviceLostError."""
    with _lock:
        idle = _idle.setdefault((on.context, nbytes), [])
        found = next(filter(PinnedRing.is_free, idle), None)
        if found is not None:
            idle.remove(found)
    return PinnedRing(on, count, nbytes) if found is None else found


def keep(done: PinnedRing) -> None:
    """Keep a ring for the next who takes one. Not after an error: a transfer may still use it."""
    with _lock:
        _idle.setdefault(done.key, []).append(done)


@contextmanager
def ring(on: cl.CommandQueue, count: int = _PIECES, nbytes: int = PIECE) -> Iterator[PinnedRing]:
    """One that is :func:`taken` for the length of a block."""
    found = taken(on, count, nbytes)
    yield found
    keep(found)


@at_release
def release() -> None:
    """Free the rings that no call uses. PyOpenCL's event of a transfer keeps its host memory alive, and a
    call keeps the events until it ends.
    """
    with _lock:
        _idle.clear()


@at_loss
def _forget(context: cl.Context) -> None:
    """Drop the rings of a lost context."""
    with _lock:
        for key in [key for key in _idle if key[0] == context]:
            del _idle[key]


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """The threads that copy; a forked process makes its own."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="pyclmm-copy")


def wait_for_all(futures: Iterable[Future[Any]]) -> None:
    """Wait until each has ended or was cancelled, also while a signal's handler raises, as that of Ctrl-C
    does: no thread may use memory of a call that has ended. What it raised last comes afterwards.
    """
    raised: BaseException | None = None
    for each in futures:
        while not each.done():
            try:
                each.exception()
            except CancelledError:
                break
            except BaseException as error:
                raised = error
    if raised is not None:
        raise raised


def aside(work: Callable[[], T]) -> T:
    """What *work* gives in a thread of its own: it may start threads and submit to a ThreadPoolExecutor,
    for whose locks a call that a signal's handler makes in this thread would wait.
    """
    done: Future[T] = Future()

    def act() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    try:
        _thread.start_new_thread(act, ())  # which needs no lock
        return done.result()
    finally:
        done.cancel()  # what has not begun: a handler raised first, or the system refuses the thread
        wait_for_all([done])


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
        copies: list[Future[None]] = []
        try:
            aside(lambda: copies.extend(pool.submit(np.copyto, *piece) for piece in pieces))
        finally:
            wait_for_all(copies)
        for each in copies:
            each.result()
    except (RuntimeError, CancelledError):  # the system refuses a thread, or the interpreter ends
        _pool.cache_clear()  # another thread's call may have ended the pool, too
        pool.shutdown(cancel_futures=True)  # what has not begun would overwrite a later transfer's bytes
        np.copyto(target, source)


def _chunks(nbytes: int) -> Iterator[tuple[int, int]]:
    for start in range(0, nbytes, CHUNK):
        yield start, min(start + CHUNK, nbytes)


def upload(queue: cl.CommandQueue, buffer: cl.Buffer, memory: Bytes) -> list[cl.Event]:
    """Copy *memory* into *buffer*. Returns the events that end it; *memory* may be changed at once."""
    if memory.nbytes <= DIRECT:
        return [cl.enqueue_copy(queue, buffer, memory, is_blocking=True)]
    events = []
    with ring(queue, _CHUNKS, CHUNK) as buffers:
        for start, stop in _chunks(memory.nbytes):
            pinned = buffers.borrow()
            part = pinned[: stop - start]
            _copy(part, memory[start:stop])
            event = cl.enqueue_copy(queue, buffer, part, dst_offset=start, is_blocking=False)
            buffers.give_back(pinned, event)
            events.append(event)
    return events


def download(queue: cl.CommandQueue, memory: Bytes, buffer: cl.Buffer, after: list[cl.Event]) -> None:
    """Copy *buffer* into *memory* after the events *after*. It is complete on return."""
    if memory.nbytes <= DIRECT:
        cl.enqueue_copy(queue, memory, buffer, wait_for=after, is_blocking=True)
        return
    with ring(queue, _CHUNKS, CHUNK) as buffers:
        pending: list[tuple[Bytes, Bytes, cl.Event]] = []
        for start, stop in _chunks(memory.nbytes):
            if len(pending) == _CHUNKS:
                _collect(buffers, *pending.pop(0))
            pinned = buffers.borrow()
            part = pinned[: stop - start]
            event = cl.enqueue_copy(queue, part, buffer, src_offset=start, wait_for=after, is_blocking=False)
            queue.flush()
            pending.append((memory[start:stop], pinned, event))
        for chunk in pending:
            _collect(buffers, *chunk)


def _collect(buffers: PinnedRing, target: Bytes, pinned: Bytes, event: cl.Event) -> None:
    event.wait()
    _copy(target, pinned[: target.nbytes])
    buffers.give_back(pinned)


_rates: dict[cl.Device, tuple[float, float]] = {}


def link_rates(on: cl.CommandQueue) -> tuple[float, float]:
    """Bytes a second to and from a device, measured once in a process. Raises the driver's errors."""
    if on.device not in _rates:
        with ring(on) as pinned:
            memory = pinned.borrow()
            try:
                buffer = cl.Buffer(on.context, cl.mem_flags.READ_WRITE, PIECE)
                up = clock.least(lambda: cl.enqueue_copy(on, buffer, memory, is_blocking=False).wait(), 6)
                down = clock.least(lambda: cl.enqueue_copy(on, memory, buffer, is_blocking=False).wait(), 6)
            except cl.Error as error:
                raise rejected(device_info(on.device), "a transfer", error) from error
            finally:
                pinned.give_back(memory)
        _rates[on.device] = PIECE / up, PIECE / down
    return _rates[on.device]
