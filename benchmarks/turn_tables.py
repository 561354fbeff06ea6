"""The tables of what turns.py measured: readme.py writes them into the pages."""

from __future__ import annotations

import statistics
from typing import Any

from road_tables import lines, read

from pyclmm.tools.terminal import significant

HEAD = ("", "least ms", "half of the rounds, ms")


def about(content: dict[str, Any]) -> str:
    """What was measured where, and how busy the machine was."""
    m, n, k = content["sides"]
    loads = dict.fromkeys(f"{part:.0f}" for part in sorted(content["load"]))
    device, load = content["device"], " to ".join(loads)
    rounds = len(next(iter(content["seconds"].values())))
    return (
        f"{m} x {n} x {k}, float32, {content['platform']}, driver {device['driver_version']}, "
        f"{content['cpus']} cores of {content['processor']}, {content['date']}, at a load of {load} "
        f"(a measurement makes about 1): the least of {rounds} rounds counts."
    )


def table(*names: str) -> str:
    """A table for each of these results, below what it is about."""
    parts = []
    for content in map(read, names):
        rows = []
        for way, seconds in content["seconds"].items():
            low, _, high = statistics.quantiles([1e3 * x for x in seconds], n=4)
            cells = significant(1e3 * min(seconds)), f"{significant(low)} to {significant(high)}"
            rows.append((way, *cells))
        parts += [f"{about(content)}", lines(HEAD, rows)]
    return "\n\n".join(parts)
