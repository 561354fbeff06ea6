"""What the textbook's kernels share: one launch of a kernel that uses the macros of gemm.h, and its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..cost import ON_CPU, SIDE_BY_SIDE, launched
from ..device import DeviceInfo
from ..interface import Kernel, Work, gemm_launch, gemm_program, tiles_of

_START = 6.2  # reads of global memory: the first loads and the store


class Textbook(Kernel):
    """A kernel of one technique: every work-item runs a loop over K. Most are called by name only. Here a
    work-group has a work-item for each element of a BM x BN tile.
    """

    accepts = Accepts(fields=GENERAL | IN_ORDER)
    automatic = False
    risky = False
    tiles: Sequence[TileConfig] = (TileConfig(),)  # its configurations, best first
    macros: tuple[tuple[str, str], ...] = ()  # of its program, with the fields that give their values
    fraction = 0.0  # of the rate of multiply-adds, when the device is full
    wait: float  # reads of global memory that one element of K waits for, when it is not

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return device.too_many_steps(problem.k)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return [c for c in self.tiles if not self.violations(problem, c, device)]

    def least_seconds(self, problem: GemmProblem, device: DeviceInfo) -> float:
        """Its multiply-adds alone; 0 if they are not those of :meth:`loop_seconds`."""
        rate = 0.0 if problem.soft_float64 else device.rates.multiply_adds(problem.acc_type) * self.fraction
        vectors = (SIDE_BY_SIDE if device.vector_items else ON_CPU) if device.is_cpu else 1.0
        return problem.m * problem.n * problem.k * problem.batch / rate * vectors if rate else 0.0

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        groups = tiles_of(problem, config.bm, config.bn) * problem.batch
        return self.loop_seconds(problem, device, groups, config.bm * config.bn, config.bn)

    def loop_seconds(
        self,
        problem: GemmProblem,
        device: DeviceInfo,
        groups: int,
        items: int,
        row: int = 1,
        more_wait: float = 0.0,
    ) -> float:
        """Seconds of *groups* work-groups for *items* elements each. ``row``: how many work-items side by
        side have neighbouring columns. *more_wait* is added to ``wait``.
        """
        rates = device.rates
        alone = (_START + (more_wait + self.wait) * problem.k) * rates.latency
        rate = rates.multiply_adds(problem.acc_type) * self.fraction / device.units
        resident = max(1, device.unit.work_items // items)
        busy = items * max(1, problem.k) / rate
        vectors = SIDE_BY_SIDE if row >= device.vector_items else ON_CPU
        return launched(device, groups, items, resident, alone, busy, problem.nbytes, vectors)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return 1, 1  # work-items share nothing

    def work_group(self, config: TileConfig) -> tuple[int, int]:
        """Its size, along a row and along a column."""
        return config.bn, config.bm

    def local_bytes(self, problem: GemmProblem, config: TileConfig) -> int:
        """Bytes of local memory of a work-group."""
        return 0

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return config.violations(device, self.work_group(config), self.local_bytes(problem, config))

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        columns, rows = self.work_group(config)
        size = (-(-problem.n // config.bn) * columns, -(-problem.m // config.bm) * rows)
        defines = [(macro, getattr(config, name)) for macro, name in self.macros]
        return self.one_launch(problem, size, (columns, rows), defines)

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
