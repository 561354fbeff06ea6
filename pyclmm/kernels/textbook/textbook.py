"""What the textbook's kernels share: one launch of a kernel that uses the macros of gemm.h."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Kernel, Launch, Work, gemm_args, gemm_program, local_range, ndrange


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
        args, name = gemm_args(problem), f"matmul_{self.name}"
        launch = Launch(program, name, ndrange(problem, *size), local_range(problem, *local), args)
        return Work((launch,))
