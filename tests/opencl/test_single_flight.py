"""SingleFlight: which values are kept, and which threads need not wait."""

import threading

import pytest

from pyclmm.opencl.single_flight import SingleFlight


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


@pytest.mark.parametrize("number", [1, 2])
def test_a_value_that_a_call_within_the_look_for_it_drops(number):
    """The call comes with that hash of the key."""
    cache = SingleFlight()

    class Key:
        left = 0

        def __hash__(self):
            self.left -= 1
            if self.left == 0:
                cache.forget(lambda key: True)
            return 1

    key = Key()
    cache.put(key, 5)
    cache.put("a later one", 6)
    key.left = number
    assert cache.get(key, lambda: 5) == 5
    assert key.left <= 0


def test_the_values_used_last_are_kept():
    cache, made = SingleFlight(2), []

    def value(key):
        return cache.get(key, lambda: made.append(key) or key)

    for key in "abac":
        value(key)
    assert value("a") == "a"
    assert value("b") == "b"
    assert made == ["a", "b", "c", "b"]
