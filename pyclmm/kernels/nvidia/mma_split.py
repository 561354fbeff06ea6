"""`mma_split`: does what `split` does, by instructions that the driver's compiler accepts."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, Accepts, Types
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Arg, Defines, Launch, Work, gemm_args, tiles_of
from . import mma_ring
from .matrix_units import FLOAT16, LINE_ALIGN, local_bytes
from .parts import BLOCK_BYTES, PartsKernel, as_real, in_parts, packed_args, split_defines, unit_of
from .unit_cost import Ring, splitting_seconds

# BM, BN, SGM, SGN, and the factor by which the tile is slower on an H200 than unit_cost.py says
_TILES = {
    (128, 128, 64, 32): 1.4,
    (64, 64, 32, 32): 1.5,
}


class MmaSplit(PartsKernel):
    """See cl/nvidia/mma_split.cl. BM x BN is a work-group's tile, SGM x SGN a sub-group's."""

    name = "mma_split"
    summary = 'float32 and complex64 with precision="high", split into parts, on the matrix units of sm_80'
    accepts = Accepts(
        (Types(("float32",), "float32", ("high", "medium")), Types(("complex64",), "complex64", ("high",))),
        GENERAL,
    )
    unit = "mma_double"  # of its devices: on others float32 arithmetic is as fast as three passes
    tiles = _TILES
    sizes = ("bm", "bn", "sgm", "sgn")

    def in_parts(self, problem: GemmProblem) -> bool:
        return True

    def work_items(self, config: TileConfig) -> int:
        return mma_ring.work_items(config)

    def most_stages(self, bm: int, bn: int, device: DeviceInfo) -> int:
        return min(4, (local_bytes(device) - 1024) // ((bm + bn) * BLOCK_BYTES))

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        real = as_real(problem)
        slower = _TILES.get((config.bm, config.bn, config.sgm, config.sgn), 1.0)
        ring = Ring(real, config, device, FLOAT16, parts=3, slower=slower)
        return ring.seconds() + splitting_seconds(real, device)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        def launch(split: int, extra: tuple[Arg, ...]) -> Launch:
            args = (*gemm_args(problem), *packed_args(problem, split), *extra)
            groups = tiles_of(as_real(problem), config.bm, config.bn)
            defines: Defines = (("ELEMENT", unit_of(split).name), *split_defines(problem, split))
            return mma_ring.product(problem, config, self.name, groups, (LINE_ALIGN,) * 2, defines, args)

        return in_parts(problem, launch, ())
