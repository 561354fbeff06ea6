"""Handout: which device gets which tile next. Nothing here talks to a device; the caller locks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .helper import Helper
from .tiles import Blocking, Tile

_SAFETY = 2.0  # a slow device takes a tile only if it ends in half of the time that the others still need
# A helper that would compute less than this part of what the others do is left alone: its gain is less than
# what its use of the cores costs them (16 cores of a Xeon beside an H200, 2026-11-23: docs/scale.md).
_LEAST_PART = 1 / 8
_TRIAL = 1 / 20  # and its first tile may take this part of the time that the others still need
_WEIGHT = 0.5  # of the last measured tile in the estimate of the next


class Handout:
    """Hands out tiles to devices as they ask for them.

    A device works along a strip of its own, because the blocks that it has are used there. When that is
    used up it takes an untouched strip; when there is none it helps: it takes tiles from the far end of the
    strip with the most tiles left. A slow device is refused a tile with which it would end last, and has one
    tile at a time until its speed was measured.

    *seconds*: a tile on each device, estimated. *on_host*: which devices compute on the host's cores; a slow
    one beside devices that do not is a :class:`Helper`.
    """

    def __init__(
        self,
        blocking: Blocking,
        todo: Sequence[Tile],
        devices: int,
        seconds: Sequence[float],
        on_host: Sequence[bool] = (),
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
        self._measured = [False] * devices
        self._helpers = {i: Helper() for i, here in enumerate(on_host) if here}

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
        if device in self._helpers:
            self._helpers[device].begin()
        return tile

    def done(self, device: int, tile: Tile, seconds: float) -> None:
        """*device* has finished *tile* in *seconds*."""
        self._held[device].discard(tile)
        self._left -= 1
        self._seconds[device] += _WEIGHT * (max(seconds, 1e-9) - self._seconds[device])
        self._measured[device] = True
        if device in self._helpers:
            self._helpers[device].end(seconds, self._fed())
        else:
            for helper in self._helpers.values():
                helper.other_done(device, seconds)

    def _fed(self) -> list[int]:
        """The devices that threads of the host feed."""
        return [i for i, alive in enumerate(self._alive) if alive and i not in self._helpers]

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
        helper = self._helpers.get(device) if self._fed() else None
        if helper is not None and helper.hinders:
            return False
        held, own = len(self._held[device]), self._seconds[device]
        if own <= _SAFETY * min(self._seconds[i] for i in others):  # not more than its share of the rest
            together = sum(1 / each for each, alive in zip(self._seconds, self._alive, strict=True) if alive)
            return not held or (held + 1) * own <= self._left / together + own / 2
        if held and not self._measured[device]:
            return False
        rate = sum(1 / self._seconds[i] for i in others)
        if helper is not None and not self._may_help(device, helper):
            return False
        return (held + 1) * own * _SAFETY <= (self._left - held) / rate

    def _may_help(self, device: int, helper: Helper) -> bool:
        """Whether a helper, which is slow beside the others, may have a tile."""
        own, fed = self._seconds[device], self._fed()
        rate = sum(1 / self._seconds[i] for i in fed)
        if self._held[device] or 1 / own < _LEAST_PART * rate:
            return False
        return helper.was_tried or (helper.may_try(fed) and own <= _TRIAL * self._left / rate)
