"""The one clock: wall seconds of calls on the host, and a device's own seconds of launches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import pyopencl as cl


def elapsed(call: Callable[[], object], count: int = 1) -> float:
    """Mean wall seconds of *count* calls, one after the other."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def least(call: Callable[[], object], rounds: int) -> float:
    """Wall seconds of the fastest of *rounds* calls."""
    return min(elapsed(call) for _ in range(rounds))


def in_turn(rounds: int, *timed: Callable[[], float]) -> list[list[float]]:
    """What each of *timed* gives in each of *rounds*, in turn: clocks, heat and other users affect all."""
    every = [[time() for time in timed] for _ in range(rounds)]
    return [list(each) for each in zip(*every, strict=True)]


def marginal(run: Callable[[int], object], few: int, rounds: int) -> float:
    """Seconds of one launch more: the median of *rounds*. ``run(count)`` makes so many launches and waits for
    them. What it takes besides cancels, as it is as long for *few* as for four times as many.
    """
    spans = [elapsed(lambda: run(4 * few)) - elapsed(lambda: run(few)) for _ in range(rounds)]
    return statistics.median(spans) / (3 * few)


def device_seconds(events: Sequence[cl.Event]) -> float:
    """Seconds from the first launch's start to the last one's end; 0 if the driver does not tell."""
    return float((events[-1].profile.end - events[0].profile.start) * 1e-9)
