"""What the estimates of all families share: how launches, work-groups and bytes add up to seconds."""

from __future__ import annotations

from math import ceil, hypot

from .device import DeviceInfo

# On PoCL 3.0 (Zen 4, 2026-11-22). Intel's runtime is better at all three.
ON_CPU = 10.0  # a kernel written for many work-items, of which a CPU's compiler makes loops: its time
# The same where the compiler makes one vector of neighbouring work-items (DeviceInfo.vector_items), which
# access neighbouring elements. Intel's runtime, Zen 4, 2026-11-27.
SIDE_BY_SIDE = 0.35
_ITEM = 20e-9  # seconds that each work-item costs
_ADDING_ITEM = 200e-9  # the same where work-items add sums in steps with barriers
_ENOUGH = 3.4  # latency of device memory, in reads that the cache answers. H200, docs/kernels/register.md


def together(*seconds: float) -> float:
    """Seconds of things that go on at the same time: a little over the longest of them."""
    cubes = 0.0
    for one in seconds:
        cubes += one**3
    return float(cubes ** (1 / 3))


def waiting_factor(device: DeviceInfo, asked: float) -> float:
    """How much longer reading memory takes where each compute unit has so many bytes *asked* for on their
    way, if it receives as many, or more, while one read waits.
    """
    enough = device.rates.memory / device.units * device.rates.latency * _ENOUGH
    return hypot(1, enough / asked)


def launched(
    device: DeviceInfo,
    groups: int,
    items: int,
    resident: int,
    alone: float,
    busy: float,
    nbytes: float = 0.0,
    vectors: float = ON_CPU,
) -> float:
    """Seconds of a launch of *groups* like work-groups of *items* work-items.

    ``resident``: how many a compute unit holds. ``alone``: seconds from the start to the end of a work-group
    that waits for nothing but its own memory. ``busy``: seconds of a compute unit's time that it takes, which
    others cannot have. ``nbytes``: what the launch must move. ``vectors``: in place of ``ON_CPU`` where a
    CPU's compiler makes vectors of the work-items.
    """
    rates, slots = device.rates, device.units * max(1, resident)
    share = ceil(groups / device.units)
    if device.is_cpu:
        slower = vectors if 0 < device.vector_items <= items else ON_CPU
        waits = (items * _ITEM + alone) * min(1, slower / ON_CPU)
        each = rates.group + waits + busy * slower
        return rates.launch + together(share * each, rates.moved(nbytes))
    waiting = max(0, groups - slots) * rates.group
    rounds = ceil(groups / slots)
    return rates.launch + waiting + together(rounds * alone, share * busy, rates.moved(nbytes))


def on_cpu(device: DeviceInfo, groups: int, items: int) -> float:
    """Seconds that work-groups cost besides what they do, on a CPU, if their work-items add sums; else 0."""
    return ceil(groups / device.units) * (device.rates.group + items * _ADDING_ITEM) if device.is_cpu else 0.0
