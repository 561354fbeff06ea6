"""SingleFlight: threads that need the same value make it once, and failures are not kept."""

import threading

import pytest

from pyclmm.opencl.single_flight import SingleFlight
from tests.support.threads import in_threads


def test_many_threads_make_a_value_once():
    cache, made = SingleFlight(), []

    def make():
        made.append(1)
        return object()

    assert len(set(map(id, in_threads(8, lambda _: cache.get("key", make))))) == len(made) == 1


def test_another_key_does_not_wait():
    cache = SingleFlight()
    assert cache.get("slow", lambda: cache.get("quick", lambda: 2) + 1) == 3


def test_making_a_value_may_ask_for_it():
    """As a signal handler or a finalizer does, whose call needs the program that is being built."""
    cache = SingleFlight()
    ended = threading.Thread(
        target=lambda: cache.get("key", lambda: cache.get("key", lambda: 5)), daemon=True
    )
    ended.start()
    ended.join(20)
    assert not ended.is_alive()
    assert cache.get("key", lambda: 6) == 5


def test_a_failure_is_not_kept():
    cache = SingleFlight()
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 // 0)
    assert cache.get("key", lambda: 5) == 5


def test_the_values_used_last_are_kept():
    cache, made = SingleFlight(2), []

    def value(key):
        return cache.get(key, lambda: made.append(key) or key)

    for key in "abac":
        value(key)
    assert value("a") == "a"
    assert value("b") == "b"
    assert made == ["a", "b", "c", "b"]


def test_a_value_can_be_forgotten():
    cache = SingleFlight()
    for key in (1, 2, 3):
        cache.put(key, key)
    cache.forget(lambda key: key > 1)
    assert cache.get(1, lambda: 0) == 1
    assert cache.get(2, lambda: 0) == 0
