"""Which device gets which tile next. Nothing here talks to a device; the caller locks."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

from .tiles import Blocking, Tile

_SAFETY = 2.0  # a slow device takes a tile only if it ends in half of the time that the others still need
# A device on the host's cores that would compute less than this part of what the others do is left alone: its
# gain is less than what its use of the cores costs them (16 cores of a Xeon beside an H200, 2026-11-23:
# docs/scale.md).
_LEAST_PART = 1 / 8
_TRIAL = 1 / 20  # and its first tile may take this part of the time that the others still need
_WEIGHT = 0.5  # of the last measured tile in the estimate of the next
_KNOWN = 4  # tiles of each of the others until their pace alone is known


class TileScheduler:
    """Hands out tiles to devices as they ask for them.

    A device works along a strip of its own, because the blocks that it has are used there. When that is
    used up it takes an untouched strip; when there is none it helps: it takes tiles from the far end of the
    strip with the most tiles left. A slow device is refused a tile with which it would end last, and has one
    tile at a time until its speed was measured.

    *seconds*: a tile on each device, estimated. *on_host*: which devices compute on the host's cores; a slow
    one beside devices that do not has a :class:`HostTrial`.
    """

    def __init__(
        self, blocking: Blocking, todo: Sequence[Tile], seconds: Sequence[float], on_host: Sequence[bool] = ()
    ) -> None:
        devices = len(seconds)
        strips: dict[tuple[int, int], deque[Tile]] = {}
        for tile in todo:
            strips.setdefault((tile.z.start, blocking.strip_of(tile)), deque()).append(tile)
        self._fresh = deque(strips.values())
        self._own: list[deque[Tile]] = [deque() for _ in range(devices)]
        self._held: list[set[Tile]] = [set() for _ in range(devices)]
        self._seconds = [max(each, 1e-9) for each in seconds]
        self._alive = [True] * devices
        self.remaining = len(todo)  # tiles that are not done
        self._measured = [False] * devices
        self._trials = {i: HostTrial() for i, here in enumerate(on_host) if here}

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
        if device in self._trials:
            self._trials[device].begin()
        return tile

    def done(self, device: int, tile: Tile, seconds: float) -> None:
        """*device* has finished *tile* in *seconds*."""
        self._held[device].discard(tile)
        self.remaining -= 1
        self._seconds[device] += _WEIGHT * (max(seconds, 1e-9) - self._seconds[device])
        self._measured[device] = True
        if device in self._trials:
            self._trials[device].end(seconds, self._fed())
        else:
            for trial in self._trials.values():
                trial.other_done(device, seconds)

    def _fed(self) -> list[int]:
        """The devices that threads of the host feed."""
        return [i for i, alive in enumerate(self._alive) if alive and i not in self._trials]

    def lost(self, device: int) -> None:
        """*device* takes no more tiles; those that it has not finished go to the others."""
        self._alive[device] = False
        again = [*sorted(self._held[device], key=lambda tile: tile.number), *self._own[device]]
        self._held[device], self._own[device] = set(), deque()
        if again:
            self._fresh.appendleft(deque(again))

    def _may_take(self, device: int) -> bool:
        """Whether *device* would not end last with one more tile."""
        others = [self._seconds[i] for i, alive in enumerate(self._alive) if alive and i != device]
        if not others:
            return True
        trial = self._trials.get(device) if self._fed() else None
        if trial is not None and trial.hinders:
            return False
        held, own = len(self._held[device]), self._seconds[device]
        rate = sum(1 / each for each in others)  # tiles a second
        until_end = (held + 1) * own  # of one more
        if own <= _SAFETY * min(others):  # one more is not to be more than its share
            together = self.remaining / (rate + 1 / own)
            return not held or until_end <= together + own / 2
        if held and not self._measured[device]:
            return False
        # A slow device must end one more long before the others end the rest.
        others_end = (self.remaining - held) / rate
        return until_end * _SAFETY <= others_end and (trial is None or self._may_help(device, trial))

    def _may_help(self, device: int, trial: HostTrial) -> bool:
        """Whether a slow device on the host's cores may have a tile."""
        own, fed = self._seconds[device], self._fed()
        rate = sum(1 / self._seconds[i] for i in fed)
        if self._held[device] or 1 / own < _LEAST_PART * rate:
            return False
        return trial.was_tried or (trial.may_try(fed) and own <= _TRIAL * self.remaining / rate)


class _TileRate:
    """How fast devices finish tiles. ``count``: of each device."""

    def __init__(self) -> None:
        self.count: Counter[int] = Counter()
        self._seconds: defaultdict[int, float] = defaultdict(float)

    def add(self, device: int, seconds: float) -> None:
        self.count[device] += 1
        self._seconds[device] += max(seconds, 1e-9)

    def rate(self, device: int, otherwise: float = 0.0) -> float:
        """Tiles a second; *otherwise* if there was none."""
        return self.count[device] / self._seconds[device] if self.count[device] else otherwise


class HostTrial:
    """Whether a device that computes on the host's cores helps those that threads on these cores feed.

    Its tiles are not free: while it computes, the threads that copy blocks for the others wait for cores. So
    it gets one tile on trial, and more only as long as all together are faster than the others were alone.
    ``hinders``: it was tried, and does not help.
    """

    def __init__(self) -> None:
        self.hinders = self.was_tried = False
        self._is_busy = False
        self._alone, self._beside = _TileRate(), _TileRate()
        self._seen: set[int] = set()  # devices that have finished a tile since this one was last busy

    def may_try(self, others: list[int]) -> bool:
        """Whether the pace of the others alone is known."""
        return all(self._alone.count[each] >= _KNOWN for each in others)

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
