"""`single_group`: the whole product in one work-group; small shapes only."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Work
from .textbook import Textbook, loop_seconds

_FRACTION, _WAIT = 0.1, 0.186  # as `naive`


class SingleGroup(Textbook):
    """See cl/textbook/single_group.cl."""

    name = "single_group"
    summary = "the whole product in one work-group of M x N work-items"

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        items = problem.m * problem.n
        if items > device.max_work_group_size:
            return (
                f"M x N is {problem.m} x {problem.n}, {items} work-items in one work-group; "
                f"the device's limit is {device.max_work_group_size}"
            )
        reasons = self.violations(problem, TileConfig(), device)
        return device.too_many_steps(problem.k) or (reasons[0] if reasons else None)

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        return loop_seconds(problem, device, problem.batch, problem.m * problem.n, _FRACTION, _WAIT)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return config.violations(device, (problem.n, problem.m), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        size = (problem.n, problem.m)
        return self.one_launch(problem, size, size)
