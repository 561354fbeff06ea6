"""What `make test` runs of a test's cases. The others are marked `slow`: `make test-all` runs them too.

Of a test with several parameters each value of each is run once, and a kernel in one of its configurations.
Of the examples that hypothesis draws, and of the rounds of long tests, an eighth are run.
"""

import zlib
from collections import Counter

import pytest
from hypothesis import settings

fast = False  # whether this run leaves out what is slow


def examples(number):
    """So many examples are drawn for a test."""
    return settings(max_examples=max(5, rounds(number)))


def rounds(number):
    """So often a test repeats what it does. Tests have this function as a fixture."""
    return number // 8 if fast else number


def mark_rounds(items):
    """Mark what repeats itself, so that `make test-rest` runs it again, as often as it says."""
    for item in items:
        if "rounds" in getattr(item, "fixturenames", ()):
            item.add_marker("rounds")


def take_share(config, items):
    """Of N tests leave one, and tell the others as deselected.

    They are chosen by name, as tests that follow each other in steps of N may have a parameter in common.
    Those marked `every_share` are never left out.
    """
    number = config.getoption("share")
    left_out = {
        item.nodeid
        for item in items
        if zlib.crc32(item.nodeid.encode()) % number and not item.get_closest_marker("every_share")
    }
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]


def slow(*values):
    """These values of a parameter, for `make test-all` only."""
    return slow_rows(*((value,) for value in values))


def slow_rows(*rows):
    """The same, of several parameters."""
    return [pytest.param(*row, marks=pytest.mark.slow) for row in rows]


def few(rows, *columns):
    """*rows* of several parameters. `make test` runs as few as have each value of these *columns*."""
    chosen = _enough([[(at, str(row[at])) for at in columns] for row in rows], [False] * len(rows))
    return [pytest.param(*row, marks=() if at in chosen else pytest.mark.slow) for at, row in enumerate(rows)]


def mark_combinations(items):
    """Mark as slow what repeats values of parameters that other cases of the same test have."""
    tests = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        skipped = [bool(case.get_closest_marker("skip")) for case in cases]
        chosen = _enough([_values(case) for case in cases], skipped)
        for at, case in enumerate(cases):
            if at not in chosen:
                case.add_marker("slow")


def _enough(cases, skipped):
    """The places of as few *cases* as have each value. The last of equals: odd tiles stand behind own."""
    left = {value for values in cases for value in values}
    used, chosen = Counter(), set()

    def gain(at):
        new = sum(value in left for value in cases[at])
        return new > 0, not skipped[at], new, -sum(used[value] for value in cases[at]), at

    while left:
        best = max(range(len(cases)), key=gain)
        chosen.add(best)
        left.difference_update(cases[best])
        used.update(cases[best])
    return chosen


def _values(case):
    """The case's value for each parametrize mark. A kernel is one value, whatever its configuration."""
    left = dict(case.callspec.params)
    found = [("kernel", left.pop("subject").kernel.name)] if "subject" in left else []
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        found.append(tuple((name, id(left.pop(name))) for name in names if name in left))
    return [*found, *((name, id(value)) for name, value in left.items())]  # the last are fixtures' own
