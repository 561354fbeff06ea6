"""SingleFlight: which values are kept, and which threads need not wait."""

from pyclmm.opencl.single_flight import SingleFlight


def test_another_key_does_not_wait():
    cache = SingleFlight()
    assert cache.get("slow", lambda: cache.get("quick", lambda: 2) + 1) == 3


def test_the_values_used_last_are_kept():
    cache, made = SingleFlight(2), []

    def value(key):
        return cache.get(key, lambda: made.append(key) or key)

    for key in "abac":
        value(key)
    assert value("a") == "a"
    assert value("b") == "b"
    assert made == ["a", "b", "c", "b"]
