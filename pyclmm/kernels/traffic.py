"""What a kernel loads and computes for one product, and the roofline: the rate that this allows. Pure.

Bytes are those that work-items ask of global memory, before any cache serves them: each tile of the result
that shares its loads (:meth:`Kernel.shared_tile`) takes its rows of A and its columns of B. What a last tile
loads beyond the matrices' edges is not counted. Workspace is written once and read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ..problem.dtypes import ELEMENTS
from ..problem.gemm import GemmProblem
from .config import TileConfig
from .device import DeviceInfo
from .interface import Kernel
from .rates import Rates


@dataclass(frozen=True)
class Traffic:
    """Bytes that a product loads from global memory and stores there, and its operations."""

    nbytes: int
    operations: int

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.nbytes


@dataclass(frozen=True)
class Limit:
    """The roofline at one intensity: operations/s, ``by`` "arithmetic", "cache" or "memory"."""

    rate: float
    by: str


def loads(kernel: Kernel, problem: GemmProblem, config: TileConfig) -> tuple[int, int]:
    """How many elements of A, and of B, *kernel* loads for each product of the stack."""
    rows, columns = kernel.shared_tile(config)
    m, n, k = problem.m, problem.n, problem.k
    return m * k * ceil(n / columns), k * n * ceil(m / rows)


def traffic(kernel: Kernel, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Traffic:
    """What *kernel* moves and computes for *problem*, which it can compute."""
    a, b, out = (ELEMENTS[name].nbytes for name in (problem.a_type, problem.b_type, problem.out_type))
    a_loads, b_loads = loads(kernel, problem, config)
    each = a_loads * a + b_loads * b + problem.m * problem.n * out
    workspace = sum(space.nbytes for space in kernel.launches(problem, config, device).workspace)
    return Traffic(problem.batch * each + 2 * workspace, problem.flops)


def limit(kernel: Kernel, problem: GemmProblem, own: Traffic, rates: Rates) -> Limit:
    """The roofline: the peak, or what the bandwidth allows at this intensity, whichever is less."""
    cached = problem.nbytes <= rates.cache_size
    fed, most = (rates.cache if cached else rates.memory) * own.intensity, peak(kernel, problem, rates)
    return Limit(fed, "cache" if cached else "memory") if fed < most else Limit(most, "arithmetic")


def peak(kernel: Kernel, problem: GemmProblem, rates: Rates) -> float:
    """Operations a second of the units on which *kernel* multiplies."""
    if kernel.matrix_units:
        return 2 * rates.matrix(ELEMENTS[problem.a_type].unit)
    products = problem.m * problem.n * problem.k * problem.batch
    return problem.flops / products * rates.multiply_adds(problem.acc_type)
