"""benchmarks/turns.py: ways take turns, each is checked first; turn_tables.py: the least of each."""

import numpy as np
import pytest

from tests.support.scripts import script


@pytest.fixture(scope="module")
def turns():
    return script("benchmarks/turns.py")


def test_each_way_has_its_turn_in_each_round_and_nobody_is_always_first(turns):
    called = []
    ways = {name: (lambda name=name: called.append(name)) for name in "abc"}
    taken = turns.turns(ways, 3, turn=0)
    assert [len(samples) for samples in taken.values()] == [3, 3, 3]
    assert "".join(called) == "aaabbbccc" + "abc" + "bca" + "cab"


def test_a_turn_fills_its_time(turns, clock):
    called = []

    def call():
        called.append(1)
        clock.now += 0.25

    assert turns.turns({"a": call}, 1, turn=2.0) == {"a": [0.25]}
    assert len(called) == 3 + 8, "eight fill two seconds"


@pytest.mark.parametrize("what", ["register", "constant_b"])
def test_each_way_is_checked(turns, what, monkeypatch):
    (m, n, k), ways = getattr(turns, what)()
    assert len(ways) == {"register": 6, "constant_b": 2}[what]
    assert (m, n, k) == {"register": (256, 256, 256), "constant_b": (256, 2048, 2048)}[what]
    a, b, out = np.ones((2, 3), "f4"), np.ones((3, 2), "f4"), np.zeros((2, 2), "f4")
    with pytest.raises(AssertionError):
        turns.checked_call(lambda a, b, out: out.fill(7), a, b, out)


def test_a_table_has_the_least_time_and_says_how_busy_the_machine_was(monkeypatch):
    tables = script("benchmarks/turn_tables.py")
    content = {
        "sides": [1, 2, 3],
        "device": {"driver_version": "5"},
        "platform": "P",
        "cpus": 2,
        "processor": "Q",
        "date": "2026-11-28",
        "load": [8.4, 6.2],
        "seconds": {"way": [0.004, 0.001, 0.002, 0.003]},
    }
    monkeypatch.setattr(tables, "read", lambda name: content)
    about, table = tables.table("any").split("\n\n")
    assert "at a load of 6 to 8 " in about
    assert about.endswith("the least of 4 rounds counts.")
    assert table.splitlines()[2:] == ["| way | 1.00 | 1.25 to 3.75 |"]
