"""Handout: which device gets which tile next. Nothing here talks to a device; the caller locks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .tiles import Blocking, Tile

_SAFETY = 2.0  # a slow device takes a tile only if it ends in half of the time that the others still need
_WEIGHT = 0.5  # of the last measured tile in the estimate of the next


class Handout:
    """Hands out tiles to devices as they ask for them.

    A device works along a strip of its own, because the blocks that it has are used there. When that is
    used up it takes an untouched strip; when there is none it helps: it takes tiles from the far end of the
    strip with the most tiles left. A slow device is refused a tile with which it would end last.
    """

    def __init__(
        self,
        blocking: Blocking,
        todo: Sequence[Tile],
        devices: int,
        seconds: Sequence[float],
    ) -> None:
        depth = (blocking.n if blocking.by_columns else blocking.m) * blocking.strip
        strips: dict[tuple[int, int], deque[Tile]] = {}
        for tile in todo:
            start = (tile.columns if blocking.by_columns else tile.rows)[0]
            strips.setdefault((tile.z[0], start // depth), deque()).append(tile)
        self._fresh = deque(strips.values())
        self._own: list[deque[Tile]] = [deque() for _ in range(devices)]
        self._held: list[set[Tile]] = [set() for _ in range(devices)]
        self._seconds = [max(each, 1e-9) for each in seconds]
        self._alive = [True] * devices
        self._left = len(todo)

    @property
    def remaining(self) -> int:
        """Tiles that are not done."""
        return self._left

    def next(self, device: int) -> Tile | None:
        """A tile for *device*; None if there is none that it should take now."""
        if not self._alive[device] or not self._may_take(device):
            return None
        if not self._own[device] and self._fresh:
            self._own[device] = self._fresh.popleft()
        if self._own[device]:
            tile = self._own[device].popleft()
        else:
            longest = max(self._own, key=len)
            if not longest:
                return None
            tile = longest.pop()
        self._held[device].add(tile)
        return tile

    def done(self, device: int, tile: Tile, seconds: float) -> None:
        """*device* has finished *tile* in *seconds*."""
        self._held[device].discard(tile)
        self._left -= 1
        self._seconds[device] += _WEIGHT * (max(seconds, 1e-9) - self._seconds[device])

    def lost(self, device: int) -> None:
        """*device* takes no more tiles; those that it has not finished go to the others."""
        self._alive[device] = False
        again = [*sorted(self._held[device], key=lambda tile: tile.number), *self._own[device]]
        self._held[device], self._own[device] = set(), deque()
        if again:
            self._fresh.appendleft(deque(again))

    def _may_take(self, device: int) -> bool:
        """Whether *device* would not end last with one more tile."""
        others = [i for i, alive in enumerate(self._alive) if alive and i != device]
        if not others:
            return True
        held, own = len(self._held[device]), self._seconds[device]
        if own <= _SAFETY * min(self._seconds[i] for i in others):  # not more than its share of the rest
            together = sum(1 / each for each, alive in zip(self._seconds, self._alive, strict=True) if alive)
            return not held or (held + 1) * own <= self._left / together + own / 2
        rate = sum(1 / self._seconds[i] for i in others)
        return (held + 1) * own * _SAFETY <= (self._left - held) / rate
