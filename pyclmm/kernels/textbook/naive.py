"""`naive`: one work-item for each element, a 2-D NDRange. The last fallback."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Work, round_up, tiles_of
from .textbook import Textbook, loop_seconds

# Fraction of the rate of multiply-adds; reads of global memory that an element of K waits for. H200,
# 2026-11-22
_FRACTION, _WAIT = 0.026, 0.28
# A multiply-add of doubles by integers takes as long as so many of 32-bit integers. llvmpipe, 2026-11-23
_SOFT = 90
_SOFT_ACTIVATIONS = ("none", "relu", "leaky_relu")


class Naive(Textbook):
    """See cl/textbook/naive.cl. BM x BN is the size of a work-group."""

    name = "naive"
    summary = "one work-item for each element of the result, 2-D NDRange"
    automatic = True
    has_barriers = False
    tiles = tuple(TileConfig(bm=side, bn=side) for side in (16, 8, 4, 1))
    accepts = Accepts(fields=GENERAL | IN_ORDER | {"soft_float64", "moduli", "dot_bytes", "fallback"})

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.soft_float64 and problem.activation not in _SOFT_ACTIVATIONS:
            return f"activation {problem.activation!r} of {device.missing_type(problem.types)}"
        return super().obstacle(problem, device)

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        groups = tiles_of(problem, config.bm, config.bn) * problem.batch
        if problem.soft_float64:
            return device.rates.launch + problem.flops / 2 * _SOFT / device.rates.int32
        return loop_seconds(problem, device, groups, config.bm * config.bn, _FRACTION, _WAIT)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return config.violations(device, (config.bn, config.bm), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        size = (round_up(problem.n, config.bn), round_up(problem.m, config.bm))
        return self.one_launch(problem, size, (config.bn, config.bm))
