"""`mma`: the matrix units of NVIDIA's sm_80 and later, by instructions that the driver's compiler accepts."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ...errors import UnsupportedError
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Kernel, Work, too_long
from .matrix_units import Operands, Unit, compute_capability, pack_launches, unit_for
from .mma_ring import product, tiles, too_many_stages, unfit, work_items
from .unit_cost import Ring, pack_seconds

CAPABILITY = (8, 0)
# BM, BN, SGM, SGN, STAGES
_CONFIGS = (
    (128, 256, 64, 32, 4),
    (128, 256, 64, 32, 3),
    (128, 128, 64, 32, 3),
    (128, 128, 64, 32, 2),
    (64, 64, 32, 32, 4),
    (64, 64, 32, 32, 2),
)


class Mma(Kernel):
    """See cl/nvidia/mma.cl. BM x BN is a work-group's tile, SGM x SGN a sub-group's, BK is 128 bytes of K.
    Option ``group``: rows of tiles that are computed together.
    """

    name = "mma"
    summary = "matrix units of sm_80 and later (mma.sync), tiles copied to local memory by cp.async"
    options = ("group",)
    matrix_units = True

    def supports(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if compute_capability(device) < CAPABILITY:
            return "mma needs an NVIDIA device of compute capability 8.0 or more"
        unit = self._unit(problem)
        if isinstance(unit, str):
            return unit
        return too_long(problem) or device.missing_type(problem.types)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        unit = self._unit(problem)
        if isinstance(unit, str):
            return []
        found = [
            TileConfig(bm=m, bn=n, bk=unit.block, sgm=x, sgn=y, stages=s, options=(("group", 8),))
            for m, n, x, y, s in _CONFIGS
        ]
        return [c for c in found if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        unit = self._unit(problem)
        if isinstance(unit, str):
            return inf
        packed = Operands.of(problem, unit).packed_elements(problem)
        return Ring(problem, config, device, unit.nbytes).seconds() + pack_seconds(
            packed, unit.nbytes, device
        )

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if reasons := unfit(config, 32):
            return reasons
        if config.bm % 64 or config.bn % 64 or config.stages < 2:
            return [f"bm and bn must be multiples of 64, stages 2 or more: {config}"]
        items = work_items(config)
        if items & (items - 1) or not 64 <= items <= min(512, 8 * config.bm, 8 * config.bn):
            return [f"a work-group of {items} work-items does not fill these tiles: {config}"]
        needed = config.stages * (config.bm + config.bn) * 128 + 1024
        return too_many_stages(config, needed, device) or config.violations(device, (items,), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        unit = self._unit(problem)
        if isinstance(unit, str):
            raise UnsupportedError(unit)
        operands = Operands.of(problem, unit)
        args = operands.gemm_args(problem)
        launch = product(operands.as_packed(problem), config, self.name, tiles(problem, config), (), args)
        return Work((*pack_launches(problem, device, operands), launch), operands.workspace(problem))

    def _unit(self, problem: GemmProblem) -> Unit | str:
        return unit_for(problem)
