"""`sequential`: the triple loop in a single work-item. Speed-ups are relative to it."""

from __future__ import annotations

from collections.abc import Sequence

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Kernel, Launch, Work, gemm_args, gemm_program, local_range, ndrange

_WAIT = 0.186  # reads of global memory that an element of K waits for


class Sequential(Kernel):
    """See cl/textbook/sequential.cl."""

    name = "sequential"
    summary = "the triple loop in a single work-item, summed in float64 where the device has it"
    automatic = False
    risky = False
    accepts = Accepts(fields=GENERAL | IN_ORDER)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return device.too_many_steps(problem.m * problem.n * problem.k)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return [TileConfig()]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        rates, steps = device.rates, problem.m * problem.n * problem.k
        return rates.launch + problem.batch * steps * _WAIT * rates.latency

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return 1, 1

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return []

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        wide = {"float32": "float64", "complex64": "complex128"}
        wide = {} if problem.reproducible or not device.has_fp64 else wide
        acc_type = wide.get(problem.acc_type, problem.acc_type)
        return Work(
            (
                Launch(
                    gemm_program(problem, "textbook/sequential.cl", acc_type=acc_type),
                    "matmul_sequential",
                    ndrange(problem, 1),
                    local_range(problem, 1),
                    gemm_args(problem),
                ),
            )
        )
