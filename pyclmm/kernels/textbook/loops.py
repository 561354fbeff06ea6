"""How long the textbook's kernels take: each work-item runs a loop over K for one element."""

from __future__ import annotations

from math import ceil

from ...problem.gemm import GemmProblem
from ..cost import launched
from ..device import DeviceInfo

_START = 6.2  # reads of global memory: the first loads and the store


def loop_seconds(
    problem: GemmProblem, device: DeviceInfo, groups: int, items: int, fraction: float, wait: float
) -> float:
    """Seconds of *groups* work-groups of *items* work-items, one for each element.

    ``fraction``: of the rate of multiply-adds, when the device is full. ``wait``: reads of global memory that
    one element of K waits for, when it is not.
    """
    rates = device.rates
    alone = (_START + wait * problem.k) * rates.latency
    rate = rates.multiply_adds(problem.acc_type) * fraction / device.units
    resident = max(1, device.unit.work_items // items)
    return launched(device, groups, items, resident, alone, items * max(1, problem.k) / rate, problem.nbytes)


def groups_of(problem: GemmProblem, rows: int, columns: int) -> int:
    """Work-groups that cover the stack's results, each rows x columns."""
    return max(1, ceil(problem.m / rows) * ceil(problem.n / columns) * problem.batch)
