"""Helper: a device that computes on the host's cores, beside devices that threads on these cores feed.

Its tiles are not free: while it computes, the threads that copy blocks for the others wait for cores. So it
gets one tile on trial, and more only as long as all together are faster than the others were alone.
"""

from __future__ import annotations

_KNOWN = 4  # tiles of each of the others until their pace alone is known


class _Pace:
    """How fast devices finish tiles."""

    def __init__(self) -> None:
        self._count: dict[int, int] = {}
        self._seconds: dict[int, float] = {}

    def add(self, device: int, seconds: float) -> None:
        self._count[device] = self._count.get(device, 0) + 1
        self._seconds[device] = self._seconds.get(device, 0.0) + max(seconds, 1e-9)

    def count(self, device: int) -> int:
        return self._count.get(device, 0)

    def rate(self, device: int, otherwise: float = 0.0) -> float:
        """Tiles a second; *otherwise* if there was none."""
        return self._count[device] / self._seconds[device] if device in self._count else otherwise


class Helper:
    """Whether one such device helps. ``hinders``: it was tried, and does not."""

    def __init__(self) -> None:
        self.hinders = self.was_tried = False
        self._is_busy = False
        self._alone, self._beside = _Pace(), _Pace()
        self._seen: set[int] = set()  # devices that have finished a tile since the helper was last busy

    def may_try(self, others: list[int]) -> bool:
        """Whether the pace of the others alone is known."""
        return all(self._alone.count(each) >= _KNOWN for each in others)

    def begin(self) -> None:
        """It takes a tile."""
        self._is_busy = True

    def other_done(self, device: int, seconds: float) -> None:
        """Another device has finished a tile, *seconds* after its last one."""
        if self._is_busy:
            self._beside.add(device, seconds)
        elif device in self._seen:  # the first one was begun beside it, or with empty slots
            self._alone.add(device, seconds)
        else:
            self._seen.add(device)

    def end(self, seconds: float, others: list[int]) -> None:
        """Its tile took so many *seconds*."""
        self._is_busy, self.was_tried = False, True
        self._seen.clear()
        own = 1 / max(seconds, 1e-9)
        alone = {each: self._alone.rate(each) for each in others}
        # One that has finished nothing meanwhile has at most finished one.
        together = own + sum(self._beside.rate(each, min(rate, own)) for each, rate in alone.items())
        self.hinders = self.hinders or together < sum(alone.values())
