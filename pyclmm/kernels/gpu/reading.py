"""The reading model: estimates how long `thin` takes, which reads its big operand once.

Throughput depends on how many bytes are in flight:

    in flight   bytes on their way to a compute unit: work-items x accesses ahead x bytes of an access
    enough      what a compute unit receives while one read of device memory waits
    rate        falls by sqrt(1 + (enough / in flight)^2)
    registers   limit how many work-groups a compute unit holds. The others run in later waves, and the last
                wave may have fewer bytes in flight

The constants were measured on an NVIDIA H200 (docs/kernels/register.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..cost import ON_CPU, on_cpu, together
from ..device import DeviceInfo
from ..interface import round_up

_LINE = 128  # bytes of a cache line: reading whole cache lines is fastest
_NARROW = 0.08  # slower by this where a work-group reads half a cache line of a row; 3 times for a quarter
_ENOUGH = 3.4  # latency of device memory, in reads that the cache answers (Rates.latency)
# Reads of global memory: until the first accesses arrive, and for the sums at the end; more for each
# work-item
_START, _START_ITEM = 10.0, 3e-3
_SUMS = 2.3e-06  # the second launch, which adds partial sums, besides an empty launch
_PRODUCTS = 0.25  # fraction of the rate of multiply-adds: 8 x 8192 x 8192 float32 takes 103 us


@dataclass(frozen=True)
class Reading:
    """A launch that reads ``nbytes``: a work-group of ``items`` work-items for each tile and range of K.

    There are ``tiles`` tiles and ``split_k`` ranges. A work-item has ``depth`` accesses of ``access`` bytes
    in flight, and ``sums`` 32-bit words of sums. A work-group reads ``line`` contiguous bytes of a row.
    ``products`` is the number of multiply-adds.
    """

    nbytes: int
    tiles: int
    split_k: int
    items: int
    depth: int
    access: int
    line: int
    sums: int
    products: int
    acc_type: str

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

    def seconds(self, device: DeviceInfo) -> float:
        """Seconds from the start of the first launch to the end of the last."""
        rates = device.rates
        slots = device.units * self.resident(device)
        full, rest = divmod(self.groups, slots)
        reading = full * self._wave(slots, device) + self._wave(rest, device)
        narrow = 1 + _NARROW * max(0.0, _LINE / self.line - 1)
        starts = 1 + (full + (rest > 0) - 1) / self.resident(device)
        multiplying = self.products / (rates.multiply_adds(self.acc_type) * _PRODUCTS)
        seconds = together(reading * narrow, multiplying)
        seconds += (_START + _START_ITEM * self.items) * rates.latency * starts
        seconds += rates.group * max(0, self.groups - slots)
        seconds = seconds * (ON_CPU if device.is_cpu else 1) + on_cpu(device, self.groups, self.items)
        return seconds + rates.launch + (rates.launch + _SUMS if self.split_k > 1 else 0)

    def _wave(self, groups: int, device: DeviceInfo) -> float:
        """Seconds of *groups* work-groups that run at the same time."""
        rates = device.rates
        each = self.nbytes / self.groups
        ahead = min(self.items * self.depth * self.access, each)
        asked = max(1.0, ahead * groups / device.units)
        enough = rates.memory / device.units * rates.latency * _ENOUGH
        rate = rates.cache if self.nbytes <= rates.cache_size else rates.memory
        return groups * each / rate * math.hypot(1, enough / asked)
