"""What a kernel moves and computes for one product, and the roofline: the rate that this allows. Pure.

Bytes are those that work-items ask of global memory, before any cache: a work-group loads a row of A and a
column of B once for each of its tiles (:meth:`Kernel.shared_tile`). Workspace is written once and read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ..problem.dtypes import dtype_of
from ..problem.gemm import GemmProblem
from .config import TileConfig
from .device import DeviceInfo
from .interface import Kernel
from .rates import Rates


@dataclass(frozen=True)
class Traffic:
    """Bytes that a product moves from and to global memory, and its operations."""

    nbytes: int
    operations: int

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.nbytes


@dataclass(frozen=True)
class Limit:
    """The roofline at one intensity: operations a second, and what they are limited by."""

    rate: float
    by: str


def traffic(kernel: Kernel, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Traffic:
    """What *kernel* moves and computes for *problem*, which it can compute."""
    rows, columns = kernel.shared_tile(config)
    a, b, out = (dtype_of(name).itemsize for name in (problem.a_type, problem.b_type, problem.out_type))
    m, n, k = problem.m, problem.n, problem.k
    moved = m * k * a * ceil(n / columns) + k * n * b * ceil(m / rows) + m * n * out
    work = kernel.launches(problem, config, device)
    workspace = sum(space.nbytes for space in work.workspace)
    return Traffic(problem.batch * moved + 2 * workspace, problem.flops)


def bandwidth(rates: Rates, nbytes: int) -> float:
    """Bytes a second of operands that are *nbytes* together and are read again and again."""
    return rates.cache if nbytes <= rates.cache_size else rates.memory


def peak(kernel: Kernel, problem: GemmProblem, rates: Rates) -> float:
    """Operations a second of the units on which *kernel* multiplies."""
    if kernel.matrix_units:
        return 2 * rates.matrix(dtype_of(problem.a_type).itemsize)
    return 2 * rates.multiply_adds(problem.acc_type)


def limit(kernel: Kernel, problem: GemmProblem, own: Traffic, rates: Rates) -> Limit:
    """The roofline: the peak, or what the bandwidth allows at this intensity, whichever is less."""
    fits = problem.nbytes <= rates.cache_size
    fed, most = bandwidth(rates, problem.nbytes) * own.intensity, peak(kernel, problem, rates)
    return Limit(fed, "cache" if fits else "memory") if fed < most else Limit(most, "arithmetic")
