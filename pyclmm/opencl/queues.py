"""Queues and their contexts: the default queue, queues on a device, and what threads keep for them."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import pyopencl as cl

from .. import environment
from ..errors import ArgumentError, DTypeError
from . import forks, status
from .devices import DeviceChoice, default_device, find_device, runs_on_callers_thread, threadless_beside

T = TypeVar("T")
_lock = threading.RLock()
_contexts: dict[cl.Device, cl.Context] = {}
_queues: dict[Hashable, cl.CommandQueue] = {}  # by device, and by what names one
_meanwhile: list[Callable[[], None]] = []


def meanwhile(start: Callable[[], None]) -> None:
    """Call *start* before the first cached queue is made: meanwhile, as a driver takes long to start."""
    _meanwhile.append(start)


def default_queue() -> cl.CommandQueue:
    """The in-order queue on the default device, one for each process. Raises NoDeviceError or ForkError."""
    forks.check_process()
    key = "PYOPENCL_CTX", environment.CONTEXT.value
    return _queues.get(key) or _searched(key, default_device)


class FreeQueue(cl.CommandQueue):
    """A queue on the default device that says: the caller has chosen no device, and its platform has one
    without threads, or the device has a queue without. A small product may go to ``threadless``, that queue
    or one there (execution/placement.py).
    """

    threadless: cl.CommandQueue


class OwnThreadQueue(cl.CommandQueue):
    """An in-order queue of Intel's CPU runtime whose kernels run on the thread that enqueues them, all of
    their work-groups (cl_intel_exec_by_local_thread).
    """

    def __init__(self, context: cl.Context, device: cl.Device) -> None:
        with status.available(device):
            super().__init__(context, device, _LOCAL_EXEC)


_LOCAL_EXEC: Any = 1 << 31  # CL_QUEUE_THREAD_LOCAL_EXEC_ENABLE_INTEL
_FREE = ("a queue for callers who choose no device",)


def free_queue() -> cl.CommandQueue:
    """The default queue, or a :class:`FreeQueue`. Raises NoDeviceError; ForkError if there is none yet."""
    if environment.CONTEXT.value:
        return default_queue()
    return _queues.get(_FREE) or _found_free()


def _found_free() -> cl.CommandQueue:
    queue, threadless = default_queue(), None
    if (beside := threadless_beside(queue.device)) is not None:
        threadless = queue_on(beside)
    elif runs_on_callers_thread(queue.device):
        threadless = OwnThreadQueue(queue.context, queue.device)
    if threadless is not None:
        with status.available(queue.device):
            queue = FreeQueue(queue.context, queue.device)
        queue.threadless = threadless
    with _lock:
        return _queues.setdefault(_FREE, queue)


def queue_on(choice: DeviceChoice) -> cl.CommandQueue:
    """A cached in-order queue on the device that :func:`find_device` finds. Raises as it does."""
    forks.check_process()
    # A search takes long, so its queue is cached by name.
    key = choice if type(choice) in (str, int) else find_device(choice)
    return _queues.get(key) or _searched(key, lambda: find_device(choice))


def _searched(key: Hashable, find: Callable[[], cl.Device]) -> cl.CommandQueue:
    """The queue of the device that *find* gives, cached by *key* too."""
    with _lock:
        while _meanwhile:
            _meanwhile.pop()()
    device = find()
    with _lock:
        queue = _queues[key] = _queues[device] = _queues.get(device) or new_queue(device)
    return queue


def check_queue(queue: Any, device: DeviceChoice | None = None) -> None:
    """Raise ArgumentError for a *queue* that is given beside a *device*, DTypeError for what is no queue."""
    if device is not None:
        raise ArgumentError("queue and device are both given; pass one: a queue belongs to a device")
    if not isinstance(queue, cl.CommandQueue):
        raise DTypeError(f"queue is a {type(queue).__name__}; pass a pyopencl.CommandQueue")


def context_of(device: cl.Device) -> cl.Context | None:
    """This module's context for *device*, if it has made one."""
    return _contexts.get(device)


_losing: list[Callable[[Any], object]] = []


def at_loss(drop: Callable[[Any], T]) -> Callable[[Any], T]:
    """Have :func:`forget` call *drop* with a lost context, which may be of another launcher."""
    _losing.append(drop)
    return drop


def forget(context: Any) -> None:
    """Drop a lost context and its queues, so that the next call makes new ones. With it goes the queue
    without threads for which a queue of it may be left.
    """
    free = _queues.get(_FREE)
    if isinstance(free, FreeQueue) and free.context == context:
        _forget(free.threadless.context)
    _forget(context)


def _forget(context: Any) -> None:
    for drop in _losing:
        drop(context)
    with _lock:
        for device in [device for device, kept in _contexts.items() if kept == context]:
            del _contexts[device]
        for key in [key for key, queue in _queues.items() if queue.context == context]:
            del _queues[key]


def new_queue(device: cl.Device, *, profiling: bool = False) -> cl.CommandQueue:
    """A new in-order queue on *device*, in this module's context for the device. The context is kept, because
    Intel's CPU runtime frees a context that only a queue refers to. Raises DeviceLostError or
    DeviceMemoryError if the driver makes none.
    """
    with status.available(device):
        context = _contexts.get(device) or _contexts.setdefault(device, cl.Context([device]))
        if profiling:
            return cl.CommandQueue(context, device, cl.command_queue_properties.PROFILING_ENABLE)
        return cl.CommandQueue(context, device)


def queue_beside(queue: cl.CommandQueue, properties: Any = 0) -> cl.CommandQueue:
    """A new queue in the context of *queue*. Raises as :func:`new_queue` does."""
    with status.available(queue.device):
        return cl.CommandQueue(queue.context, queue.device, properties)


class _Mine(threading.local):
    """What one thread holds: objects by key, those made first first, and the one that it used last."""

    latest: Any = None

    @property
    def held(self) -> dict[Hashable, Any]:
        made: dict[Hashable, Any] = vars(self).setdefault("held", {})  # a call may come inside __init__
        return made


class PerThread(Generic[T]):
    """Objects that each thread has for itself, by queue or context, so that calls use them without a lock. A
    thread holds the *most* that it made last; with 0 none: somebody else holds an object.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._lock = threading.RLock()  # a finalizer may run inside and call pyclmm
        self._numbers = itertools.count()
        self.clear()

    def clear(self) -> None:
        """Let go of the objects of all threads. One that is in use lives until it is not."""
        self._every: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        self.mine = _Mine()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The object of this thread and *key*; a new one if there is none."""
        mine, place = self.mine, (threading.get_ident(), key)
        found = mine.held.get(key) if self._most else self._found(place)
        if found is None:
            mine.latest = None
            while self._most and len(mine.held) >= self._most:  # before the new one takes memory
                del mine.held[next(iter(mine.held))]
            found = self.add(make(), place)
            if self._most:
                mine.held[key] = found
        if self._most:
            mine.latest = found
        return found

    def keep(self, key: Hashable, made: T) -> None:
        """Hold *made* for this thread, in place of what *key* had; it is the latest."""
        held = self.mine.held
        held.pop(key, None)
        held[key] = self.mine.latest = made
        if len(held) > self._most:
            del held[next(iter(held))]

    def _found(self, place: Hashable) -> T | None:
        with self._lock:
            return self._every.get(place)

    def add(self, made: T, place: Hashable = None) -> T:
        """Add an object to :meth:`all`. Without a *place* nobody gets it."""
        with self._lock:
            self._every[next(self._numbers) if place is None else place] = made
        return made

    def all(self) -> list[T]:
        """The objects of all threads that somebody holds."""
        with self._lock:
            return list(self._every.values())


_freeing: list[Callable[[], object]] = []


def at_release(free: Callable[[], object]) -> Callable[[], None]:
    """Have :func:`release` call *free*, which frees what a module keeps for later calls, in all threads. In a
    forked process that is its parent's, under locks that no thread gives back: there nothing is freed.
    """

    @functools.wraps(free)
    def freeing() -> None:
        if not forks.is_forked():
            free()

    _freeing.append(freeing)
    return freeing


def release() -> None:
    """Free what all modules keep for later calls: the newest first, as they use the others."""
    for free in reversed(_freeing):
        free()
