"""`single_group`: the whole product in one work-group; small shapes only."""

from __future__ import annotations

from collections.abc import Sequence

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Kernel, Launch, Work, gemm_args, gemm_program, local_range, ndrange
from .loops import loop_seconds

_FRACTION, _WAIT = 0.1, 0.186  # as `naive`


class SingleGroup(Kernel):
    """See cl/textbook/single_group.cl."""

    name = "single_group"
    summary = "the whole product in one work-group of M x N work-items"
    automatic = False
    risky = False
    accepts = Accepts(fields=GENERAL | IN_ORDER)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        items = problem.m * problem.n
        if items > device.max_work_group_size:
            return (
                f"M x N is {problem.m} x {problem.n}, {items} work-items in one work-group; "
                f"the device's limit is {device.max_work_group_size}"
            )
        reasons = self.violations(problem, TileConfig(), device)
        return device.too_many_steps(problem.k) or (reasons[0] if reasons else None)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return [TileConfig()]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        return loop_seconds(problem, device, problem.batch, problem.m * problem.n, _FRACTION, _WAIT)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return 1, 1

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return config.violations(device, (problem.n, problem.m), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        size = (problem.n, problem.m)
        return Work(
            (
                Launch(
                    gemm_program(problem, "textbook/single_group.cl"),
                    "matmul_single_group",
                    ndrange(problem, *size),
                    local_range(problem, *size),
                    gemm_args(problem),
                ),
            )
        )
