"""The reading model: estimates how long cl/gpu/thin_walk.cl takes, to order the configurations of `thin`.

The big operand is read once. Throughput depends on how many bytes are in flight:

    in flight   bytes on their way to a compute unit: work-items x accesses ahead x bytes of an access
    rate        falls by sqrt(1 + (ENOUGH / in flight)^2)
    registers   limit how many work-groups a compute unit holds. The others run in later waves, and the last
                wave may have fewer bytes in flight

The constants were measured on an NVIDIA H200 (docs/kernels/register.md). They serve to rank configurations,
not to predict times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..device import DeviceInfo
from ..interface import round_up
from .waves import units

_ENOUGH = 16384  # bytes
_LINE = 128  # bytes of a cache line: reading whole cache lines is fastest
_NARROW = 0.08  # slower by this where a work-group reads half a cache line of a row; 3 times for a quarter
_START = 3000  # cycles until the first accesses arrive, and for the sums at the end
_LAUNCH = 5000  # cycles of the second launch, which adds partial sums


@dataclass(frozen=True)
class Reading:
    """A launch that reads ``nbytes``: a work-group of ``items`` work-items for each tile and range of K.

    There are ``tiles`` tiles and ``split_k`` ranges. A work-item has ``depth`` accesses of ``access`` bytes
    in flight, and ``sums`` 32-bit words of sums. A work-group reads ``line`` contiguous bytes of a row.
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
        """About how many 32-bit registers a work-item needs: two sets of accesses, sums, addresses."""
        return 16 + 2 * self.depth * (self.access // 4) + self.sums

    @property
    def groups(self) -> int:
        """Work-groups of the launch."""
        return max(1, self.tiles * self.split_k)

    def resident(self, device: DeviceInfo) -> int:
        """Work-groups that a compute unit holds at the same time."""
        unit = device.unit
        registers = self.items * round_up(self.registers, 8)
        return max(1, min(unit.registers // registers, unit.work_items // self.items))

    def cycles(self, device: DeviceInfo) -> float:
        """Cycles from the start of the first launch to the end of the last."""
        slots = units(device) * self.resident(device)
        full, rest = divmod(self.groups, slots)
        reading = full * self._wave(slots, device) + self._wave(rest, device)
        narrow = 1 + _NARROW * max(0.0, _LINE / self.line - 1)
        starts = 1 + (full + (rest > 0) - 1) / self.resident(device)
        return reading * narrow + _START * starts + (_LAUNCH if self.split_k > 1 else 0)

    def _wave(self, groups: int, device: DeviceInfo) -> float:
        """Cycles of *groups* work-groups that run at the same time."""
        each = self.nbytes / self.groups
        ahead = min(self.items * self.depth * self.access, each)
        asked = max(1.0, ahead * groups / units(device))
        return groups * each / (device.unit.stream * units(device)) * math.hypot(1, _ENOUGH / asked)
