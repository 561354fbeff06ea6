"""PerQueue: an object for each thread and queue. So calls share it without a lock."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import pyopencl as cl

T = TypeVar("T")
_numbers = itertools.count()


class PerQueue(Generic[T]):
    """Weak references to objects of all threads, by thread and queue."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may run inside and call pyclmm
        self._objects: WeakValueDictionary[Any, T] = WeakValueDictionary()

    def get(self, queue: cl.CommandQueue, make: Callable[[], T]) -> T:
        """The object of this thread and *queue*; a new one if nobody holds one."""
        key = threading.get_ident(), queue
        with self._lock:
            found = self._objects.get(key)
            if found is None:
                found = self._objects[key] = make()
            return found

    def add(self, made: T) -> T:
        """Add an object that nobody gets, so that it is among :meth:`all`."""
        with self._lock:
            self._objects[next(_numbers)] = made
        return made

    def all(self) -> list[T]:
        """The objects of all threads that somebody holds."""
        with self._lock:
            return list(self._objects.values())
