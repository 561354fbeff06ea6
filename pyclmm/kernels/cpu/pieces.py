"""What the families for CPU devices share: who may run, macros, and the workspace of split-K."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Kernel, Workspace

FRACTION = 0.85  # of the rate of multiply-adds. Zen 4 and Zen 5, docs/kernels/packed.md
OF_MEMORY = 0.6  # of the memory's rate, where numbers are loaded one by one. Zen 5, PoCL 3.0, 2026-11-29

# Seconds in which a compute unit starts a work-group of a stack: PoCL 3.0, a Xeon; 0.3 with Intel's runtime
_GROUP = 0.1e-6
# Of partial sums that stay with their plan: a loan takes longer on the host
_FEW_BYTES = 1 << 12


def stack_seconds(groups: int, problem: GemmProblem, device: DeviceInfo) -> float:
    """Seconds that the work-groups of a stack take to start, *groups* for each product after the first."""
    return _GROUP * (groups * (problem.batch - 1) // device.units)


def side(length: int, most: int) -> int:
    """Rows, or columns, of a tile: those of the fewest tiles of at most *most*, about equally many."""
    return -(-length // -(-length // most)) if length else 1


def unfit_vectors(
    config: TileConfig, nbytes: int, bits: int, lanes: tuple[int, ...] = (2, 4, 8, 16)
) -> list[str]:
    """Why vectors of VEC numbers of *nbytes* are none of the processor's, of *bits*. Empty if they are."""
    if config.vec in lanes and config.vec * nbytes * 8 <= bits:
        return []
    *others, widest = lanes
    return [f"VEC must be {', '.join(map(str, others))} or {widest} and fit {bits} bits: {config}"]


class CpuKernel(Kernel):
    """A family for CPU devices, whose work-items run long loops."""

    made_for = "cpu"

    def unsuited(self, device: DeviceInfo) -> str | None:
        if not device.is_cpu:
            return f"{self.name} is for CPU devices, this is a {device.kind}"
        if device.ends_loops_early:
            return f"{self.name} is for CPU devices that run loops to their end, not for {device.name!r}"
        return None


def range_sums(problem: GemmProblem, split_k: int, counters: int, size: int = 0) -> tuple[Workspace, ...]:
    """The workspace of ``RANGE_ARGS`` (cl/cpu/last_range.h): partial sums and *counters*; nothing where K is
    not split. *size*: bytes of a product's sums, if they are not those of its elements.
    """
    if split_k == 1:
        return ()
    nbytes = split_k * problem.batch * (size or problem.m * problem.n * problem.sums.nbytes)
    few = nbytes <= _FEW_BYTES
    return Workspace("partial", nbytes, zeroed=few), Workspace("arrived", 4 * counters, zeroed=True)
