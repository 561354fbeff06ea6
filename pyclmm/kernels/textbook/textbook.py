"""What the textbook's kernels share: one launch of a kernel that uses the macros of gemm.h, and its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..cost import launched
from ..device import DeviceInfo
from ..interface import Kernel, Work, gemm_launch, gemm_program

_START = 6.2  # reads of global memory: the first loads and the store


class Textbook(Kernel):
    """A kernel of one technique: every work-item runs a loop over K. Most are called by name only."""

    accepts = Accepts(fields=GENERAL | IN_ORDER)
    automatic = False
    risky = False
    tiles: Sequence[TileConfig] = (TileConfig(),)  # its configurations, best first

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return device.too_many_steps(problem.k)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return [c for c in self.tiles if not self.violations(problem, c, device)]

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return 1, 1  # work-items share nothing

    def one_launch(
        self,
        problem: GemmProblem,
        size: tuple[int, ...],
        local: tuple[int, ...],
        defines: Iterable[tuple[str, int]] = (),
        acc_type: str | None = None,
    ) -> Work:
        """The launch of cl/textbook/<name>.cl with work-groups of *local* work-items, *size* in all."""
        program = gemm_program(problem, f"textbook/{self.name}.cl", defines, acc_type)
        return Work((gemm_launch(problem, program, f"matmul_{self.name}", size, local),))


def loop_seconds(
    problem: GemmProblem, device: DeviceInfo, groups: int, items: int, fraction: float, wait: float
) -> float:
    """Seconds of *groups* work-groups of *items* work-items, one for each element.

    ``fraction``: of the rate of multiply-adds, when the device is full. ``wait``: reads of global memory that
    one element of K waits for, when it is not.
    """
    rates = device.rates
    alone = (_START + wait * problem.k) * rates.latency
    rate = rates.multiply_adds(problem.acc_type) * fraction / device.units
    resident = max(1, device.unit.work_items // items)
    return launched(device, groups, items, resident, alone, items * max(1, problem.k) / rate, problem.nbytes)
