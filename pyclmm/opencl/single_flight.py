"""SingleFlight: a cache that makes each value once, however many threads ask for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_ABSENT: Any = object()


class SingleFlight(Generic[K, V]):
    """Keeps the *most* recently used values; all of them for None. One thread makes a value, and others that
    ask for it wait. If making it raises, nothing is kept and the next thread tries again.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self._making: dict[K, threading.RLock] = {}
        self._lock = threading.RLock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of *key*, from the cache or from *make*. An exception of *make* is raised again."""
        with self._lock:
            found: V = self._values.get(key, _ABSENT)
            if found is not _ABSENT:
                with suppress(KeyError):  # a call within this one has dropped it
                    self._values.move_to_end(key)
                return found
            mine = self._making.setdefault(key, threading.RLock())
        with mine:
            with self._lock:
                found = self._values.get(key, _ABSENT)
            if found is not _ABSENT:
                return found
            try:
                return self.put(key, make())
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def put(self, key: K, value: V) -> V:
        """Keep *value* and return it."""
        with self._lock:
            self._values[key] = value
            while self._most is not None and len(self._values) > self._most:
                self._values.popitem(last=False)
        return value

    def forget(self, which: Callable[[K], bool]) -> None:
        """Drop the values whose key satisfies *which*."""
        with self._lock:
            for key in [key for key in self._values if which(key)]:
                del self._values[key]
