"""What `make test` runs of tests with several parameters, and what it says at its end.

Each value of each parameter is run once, and a kernel in one of its configurations. All other combinations
are marked `slow`: `make test` leaves them out, `make test-all` runs them.
"""

from __future__ import annotations

from collections import Counter

import pytest


def slow(*values):
    """These values of a parameter, for `make test-all` only."""
    return slow_rows(*((value,) for value in values))


def slow_rows(*rows):
    """The same, of several parameters."""
    return [pytest.param(*row, marks=pytest.mark.slow) for row in rows]


def mark_combinations(items):
    """Mark as slow what repeats values of parameters that other cases of the same test have."""
    tests = {}
    for item in items:
        if hasattr(item, "callspec"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        for item in set(cases).difference(_enough(cases)):
            item.add_marker("slow")


def _enough(cases):
    """As few cases of a test as have each value. The last of equals: odd tiles stand behind a kernel's own."""
    values = {case: _values(case) for case in cases}
    left = {value for found in values.values() for value in found}
    used, chosen = Counter(), []
    while left:

        def gain(case):
            new = sum(value in left for value in values[case])
            return new > 0, not case.get_closest_marker("skip"), new, -sum(used[v] for v in values[case])

        best = max(reversed(cases), key=gain)
        chosen.append(best)
        left.difference_update(values[best])
        used.update(values[best])
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
