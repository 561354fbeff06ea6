"""`sequential`: the triple loop in a single work-item. Speed-ups are relative to it."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Work
from .textbook import Textbook

_WAIT = 0.186  # reads of global memory that an element of K waits for


class Sequential(Textbook):
    """See cl/textbook/sequential.cl."""

    name = "sequential"
    summary = "the triple loop in a single work-item, summed in float64 where the device has it"

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return device.too_many_steps(problem.m * problem.n * problem.k)

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        rates, steps = device.rates, problem.m * problem.n * problem.k
        return rates.launch + problem.batch * steps * _WAIT * rates.latency

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return []

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        wide = {"float32": "float64", "complex64": "complex128"}
        wide = {} if problem.reproducible or not device.has_fp64 else wide
        acc_type = wide.get(problem.acc_type, problem.acc_type)
        return self.one_launch(problem, (1,), (1,), (), acc_type)
