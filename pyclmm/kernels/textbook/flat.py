"""`flat`: a 1-D NDRange over the elements of the result."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Work, round_up
from .textbook import Textbook, loop_seconds

_FRACTION, _WAIT = 0.08, 0.186  # as `naive`, whose work-groups share rows and columns better


class Flat(Textbook):
    """See cl/textbook/flat.cl. BN is the size of a work-group."""

    name = "flat"
    summary = "1-D NDRange in work-groups of 256: row = id / N, column = id % N"
    tiles = tuple(TileConfig(bn=size) for size in (256, 64, 16, 1))

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        groups = problem.m * problem.n * problem.batch // config.bn + 1
        return loop_seconds(problem, device, groups, config.bn, _FRACTION, _WAIT)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return config.violations(device, (config.bn,), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        size = round_up(problem.m * problem.n, config.bn)
        return self.one_launch(problem, (size,), (config.bn,))
