"""LastUsed: a cache of what was used last. SingleFlight: one that makes each value once, whoever asks.

Any thread may ask, and so may a signal handler or a finalizer within a call.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LastUsed(Generic[K, V]):
    """Keeps the *most* recently used values, none of which is None; all of them for None."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.RLock()

    def find(self, key: K) -> V | None:
        """The value of *key*, which is used now; None if there is none."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                with suppress(KeyError):  # a call within this one has dropped it
                    self._values.move_to_end(key)
            return found

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of *key*, from the cache or from *make*. An exception of *make* is raised again."""
        found = self.find(key)
        return self.put(key, make()) if found is None else found

    def put(self, key: K, value: V) -> V:
        """Keep *value* and return it."""
        with self._lock:
            self._values[key] = value
            while self._most is not None and len(self._values) > self._most:
                self._values.popitem(last=False)
        return value

    def items(self) -> list[tuple[K, V]]:
        """The keys and values, what was used last last."""
        with self._lock:
            return list(self._values.items())

    def forget(self, which: Callable[[K], bool] = lambda _: True) -> None:
        """Drop the values whose key satisfies *which*, or all."""
        with self._lock:
            for key in filter(which, list(self._values)):  # a call within this one may change them
                self._values.pop(key, None)


class SingleFlight(LastUsed[K, V]):
    """One thread makes a value, and others that ask for it wait. If making it raises, nothing is kept and the
    next thread tries again.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__(most)
        self._making: dict[K, threading.RLock] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        with self._lock:
            found = self.find(key)
            if found is not None:
                return found
            mine = self._making.setdefault(key, threading.RLock())
        with mine:
            found = self.find(key)
            if found is not None:
                return found
            try:
                return self.put(key, make())
            finally:
                with self._lock:
                    self._making.pop(key, None)
