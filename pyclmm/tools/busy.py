"""How busy other processes keep this machine while something is measured.

On Linux from processor time: what the system counts as busy, less what this process used. That is exact,
and it is of the measurement itself. (A load average is of the last minute, and counts this process too.)
Elsewhere nothing is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LIMIT = 0.25  # processors, chosen: another program that computes uses about one
_SHORTEST = 0.5  # seconds: the system counts in steps of 1/100 s
_STAT = Path("/proc/stat")
_IDLE = (3, 4, 8, 9)  # columns of the line "cpu": idle, iowait; guests count twice, as user and nice too


@dataclass
class Others:
    """Processor time of other processes, summed over the times that are :meth:`watched`."""

    seconds: float = 0.0
    busy: float = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the machine in this block."""
        start = _reading()
        try:
            yield
        finally:
            end = _reading()
            if start is not None and end is not None:
                self.seconds += end[0] - start[0]
                self.busy += end[1] - start[1]

    @property
    def processors(self) -> float | None:
        """How many processors others kept busy on average.

        None if that is not known or the time was too short.
        """
        if self.seconds < _SHORTEST:
            return None
        return max(0.0, self.busy / self.seconds)

    def warning(self) -> str | None:
        """A line for a busy machine, else None."""
        used = self.processors
        if used is None or used <= LIMIT:
            return None
        return (
            f"WARNING: the machine is busy: other processes used {used:.2g} of its {os.cpu_count()} "
            "processors while this was measured. Repeat with nothing else running."
        )


def _reading() -> tuple[float, float] | None:
    """The time, and the processor seconds that others have used until now; None where the system does not
    tell..
    """
    try:
        columns = _STAT.read_text().split("\n", 1)[0].split()[1:]
        ticks = sum(int(count) for place, count in enumerate(columns) if place not in _IDLE)
        busy = ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
    used = os.times()
    return time.monotonic(), busy - (used.user + used.system + used.children_user + used.children_system)
