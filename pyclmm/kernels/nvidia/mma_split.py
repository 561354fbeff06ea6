"""`mma_split`: does what `split` does, by instructions that the driver's compiler accepts."""

from __future__ import annotations

from collections.abc import Sequence

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, Accepts, Types
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Arg, Defines, Kernel, Launch, Work, gemm_args
from .matrix_units import FLOAT16, LINE_ALIGN, compute_capability, local_bytes
from .mma_ring import product, tiles, work_items
from .parts import BLOCK_BYTES, as_real, in_parts, packed_args, split_defines, too_long_in_parts, unit_of
from .unit_cost import Ring, splitting_seconds

# On other devices float32 arithmetic is as fast as three passes of the matrix units.
CAPABILITIES = ((8, 0), (9, 0))
# BM, BN, SGM, SGN, and the factor by which the tile is slower on an H200 than unit_cost.py says
_TILES = {
    (128, 128, 64, 32): 1.4,
    (64, 64, 32, 32): 1.5,
}


class MmaSplit(Kernel):
    """See cl/nvidia/mma_split.cl. BM x BN is a work-group's tile, SGM x SGN a sub-group's."""

    name = "mma_split"
    summary = 'float32 and complex64 with precision="high", split into parts, on the matrix units of sm_80'
    accepts = Accepts(
        (Types(("float32",), "float32", ("high", "medium")), Types(("complex64",), "complex64", ("high",))),
        GENERAL,
    )
    options = ("group",)
    matrix_units = True

    def unsuited(self, device: DeviceInfo) -> str | None:
        if compute_capability(device) not in CAPABILITIES:
            return "mma_split needs an NVIDIA device of compute capability 8.0 or 9.0"
        return None

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return too_long_in_parts(problem)

    def in_parts(self, problem: GemmProblem) -> bool:
        return True

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return [_config(*tile, device) for tile in _TILES]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        real = as_real(problem)
        slower = _TILES.get((config.bm, config.bn, config.sgm, config.sgn), 1.0)
        return Ring(real, config, device, FLOAT16, parts=3, slower=slower).seconds() + splitting_seconds(
            real, device
        )

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if (config.bm, config.bn, config.sgm, config.sgn) not in _TILES or config.split_k != 1:
            return [f"mma_split has tiles of {list(_TILES)} and no split-K, not {config}"]
        if not 2 <= config.stages <= _most_stages(config.bm, config.bn, device):
            return [f"{config.stages} stages: use 2 or more, as many as fit in local memory"]
        return config.violations(device, (work_items(config),), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        def launch(split: int, extra: tuple[Arg, ...]) -> Launch:
            args = (*gemm_args(problem), *packed_args(problem, split), *extra)
            groups = tiles(as_real(problem), config)
            defines: Defines = (("ELEMENT", unit_of(split).name), *split_defines(problem, split))
            return product(problem, config, self.name, groups, (LINE_ALIGN,) * 2, defines, args)

        return in_parts(problem, launch, ())


def _most_stages(bm: int, bn: int, device: DeviceInfo) -> int:
    return min(4, (local_bytes(device) - 1024) // ((bm + bn) * BLOCK_BYTES))


def _config(bm: int, bn: int, sgm: int, sgn: int, device: DeviceInfo) -> TileConfig:
    stages, bk = _most_stages(bm, bn, device), BLOCK_BYTES // 4
    return TileConfig(bm=bm, bn=bn, bk=bk, sgm=sgm, sgn=sgn, stages=stages, options=(("group", 8),))
