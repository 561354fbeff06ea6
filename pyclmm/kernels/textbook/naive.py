"""`naive`: one work-item for each element, a 2-D NDRange. The last fallback."""

from __future__ import annotations

from collections.abc import Sequence

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Kernel, Launch, Work, gemm_args, gemm_program, local_range, ndrange, round_up
from .loops import groups_of, loop_seconds

# Fraction of the rate of multiply-adds; reads of global memory that an element of K waits for. H200,
# 2026-11-22
_FRACTION, _WAIT = 0.026, 0.28
# A multiply-add of doubles by integers takes as long as so many of 32-bit integers. llvmpipe, 2026-11-23
_SOFT = 90
_SOFT_ACTIVATIONS = ("none", "relu", "leaky_relu")


class Naive(Kernel):
    """See cl/textbook/naive.cl."""

    name = "naive"
    summary = "one work-item for each element of the result, 2-D NDRange"
    has_barriers = False
    risky = False
    accepts = Accepts(fields=GENERAL | IN_ORDER | {"soft_float64", "moduli", "dot_bytes", "fallback"})

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.soft_float64 and problem.activation not in _SOFT_ACTIVATIONS:
            return f"activation {problem.activation!r} of {device.missing_type(problem.types)}"
        return device.too_many_steps(problem.k)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        found = [TileConfig(bm=bm, bn=bn) for bm, bn in ((16, 16), (8, 8), (4, 4), (1, 1))]
        return [c for c in found if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        groups = groups_of(problem, config.bm, config.bn)
        if problem.soft_float64:
            return device.rates.launch + problem.flops / 2 * _SOFT / device.rates.int32
        return loop_seconds(problem, device, groups, config.bm * config.bn, _FRACTION, _WAIT)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return 1, 1  # BM and BN are the work-group's, whose work-items share nothing

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return config.violations(device, (config.bn, config.bm), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        size = (round_up(problem.n, config.bn), round_up(problem.m, config.bm))
        return Work(
            (
                Launch(
                    gemm_program(problem, "textbook/naive.cl"),
                    "matmul_naive",
                    ndrange(problem, *size),
                    local_range(problem, config.bn, config.bm),
                    gemm_args(problem),
                ),
            )
        )
