"""How long cl/gpu/thin_walk.cl takes, from arithmetic alone: what orders the configurations of `thin`.

The big operand is read once, at the memory's rate as long as enough of it is asked for at a time:

    asked       bytes on their way to a compute unit: work-items x accesses ahead x bytes of an access
    rate        falls by sqrt(1 + (ENOUGH / asked)^2)
    registers   decide how many work-groups a unit holds; those beyond come later, and have less on its way

The constants are measurements of an NVIDIA H200 (docs/kernels/register.md); they rank, they do not promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..device import DeviceInfo
from ..interface import round_up
from .waves import units

_ENOUGH = 16384  # bytes
_LINE = 128  # bytes of a row that are fetched best at once
_NARROW = 0.08  # slower by this where a row's share is half of that, by three times where it is a quarter
_START = 3000  # cycles until the first accesses have come, and for the sums at the end
_LAUNCH = 5000  # cycles that adding up partial sums in a second launch takes


@dataclass(frozen=True)
class Reading:
    """Work-groups of ``items`` work-items that read ``nbytes`` together: one for each of ``split_k``
    ranges of K of each of ``tiles``.

    A work-item has ``depth`` accesses of ``access`` bytes ahead, which are ``line`` bytes of a row side by
    side, and ``sums`` 32-bit words of sums.
    """

    nbytes: int
    tiles: int
    split_k: int
    items: int
    depth: int
    access: int
    line: int
    sums: int

    @property
    def registers(self) -> int:
        """32-bit registers a work-item, about: two sets of accesses, sums, addresses."""
        return 16 + 2 * self.depth * (self.access // 4) + self.sums

    @property
    def groups(self) -> int:
        """Work-groups of the launch."""
        return max(1, self.tiles * self.split_k)

    def resident(self, device: DeviceInfo) -> int:
        """Work-groups that a compute unit holds at a time."""
        unit = device.unit
        registers = self.items * round_up(self.registers, 8)
        return max(1, min(unit.registers // registers, unit.work_items // self.items))

    def cycles(self, device: DeviceInfo) -> float:
        """From the first launch's start to the last one's end."""
        slots = units(device) * self.resident(device)
        full, rest = divmod(self.groups, slots)
        reading = full * self._round(slots, device) + self._round(rest, device)
        narrow = 1 + _NARROW * max(0.0, _LINE / self.line - 1)
        starts = 1 + (full + (rest > 0) - 1) / self.resident(device)
        return reading * narrow + _START * starts + (_LAUNCH if self.split_k > 1 else 0)

    def _round(self, groups: int, device: DeviceInfo) -> float:
        """Cycles of so many work-groups that run side by side."""
        each = self.nbytes / self.groups
        ahead = min(self.items * self.depth * self.access, each)
        asked = max(1.0, ahead * groups / units(device))
        return groups * each / (device.unit.stream * units(device)) * math.hypot(1, _ENOUGH / asked)
