"""`flat`: a 1-D NDRange over the elements of the result."""

from __future__ import annotations

from collections.abc import Sequence

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Kernel, Launch, Work, gemm_args, gemm_program, local_range, ndrange, round_up
from .loops import groups_of, loop_seconds

_FRACTION, _WAIT = 0.08, 0.186  # as `naive`, whose work-groups share rows and columns better


class Flat(Kernel):
    """See cl/textbook/flat.cl."""

    name = "flat"
    summary = "1-D NDRange in work-groups of 256: row = id / N, column = id % N"
    automatic = False
    risky = False
    accepts = Accepts(fields=GENERAL | IN_ORDER)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return device.too_many_steps(problem.k)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        found = [TileConfig(bn=size) for size in (256, 64, 16, 1)]
        return [c for c in found if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        groups = groups_of(problem, 1, 1) // config.bn + 1
        return loop_seconds(problem, device, groups, config.bn, _FRACTION, _WAIT)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return 1, 1  # BN is the size of a work-group, whose work-items share nothing

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return config.violations(device, (config.bn,), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        return Work(
            (
                Launch(
                    gemm_program(problem, "textbook/flat.cl"),
                    "matmul_flat",
                    ndrange(problem, round_up(problem.m * problem.n, config.bn)),
                    local_range(problem, config.bn),
                    gemm_args(problem),
                ),
            )
        )
