"""`split`: float32's accuracy and complex numbers on matrix units, by operands split into parts."""

from __future__ import annotations

from math import ceil

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, Accepts, Types
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import Arg, Defines, Launch, Work, Workspace, gemm_launch, gemm_program, tiles_of
from .matrix_units import FLOAT16, MAP_BYTES, TF32, local_bytes, out_defines
from .parts import (
    BLOCK_BYTES,
    PartsKernel,
    as_real,
    in_parts,
    is_complex,
    one_pass,
    packed_args,
    split_defines,
    unit_of,
)
from .unit_cost import splitting_seconds

_WORK_ITEMS = 384  # of cl/nvidia/wgmma_split.cl
_BLOCKS = 2  # of K in a stage
# Tiles, and the fraction of the full rate that each reached on an H200.
_TILES = {(128, 128): 0.92, (64, 128): 0.98, (128, 64): 0.91}
# Multiply-adds a second as fractions of the units' rates: float32's, each as three of float16; TF32's.
_THREE_PARTS = 0.33
_ONE_PART = 0.8
_BLOCK = 2.3e-07  # seconds: the least time of a stage
_TILE_SECONDS = 5.1e-06  # a tile's start and end, besides its multiplications
_START_SECONDS = 2.5e-07
_OTHER_LOCAL_BYTES = 256 + 128 + 1536 + 1024  # tensor maps, barriers, exponents, alignment
_SAME_ROWS = 64  # BM at which both quartets compute the same rows, and one passes its sums to the other


class Split(PartsKernel):
    """See cl/nvidia/split.h. "high" takes three launches: split into scaled float16 parts; multiply these, or
    split into TF32 parts if float16 is not accurate enough; multiply the TF32 parts, or return at once if
    there are none. "medium" is for complex64 only: the product of the real operands in TF32.
    """

    name = "split"
    summary = (
        'float32 with precision="high", complex64 with "high" and "medium", on the matrix units of sm_90a'
    )
    accepts = Accepts(
        tuple(Types((name,), name, ("high", "medium")) for name in ("float32", "complex64")), GENERAL
    )
    unit = "wgmma"
    tiles_in_turn = True
    tiles = _TILES

    def in_parts(self, problem: GemmProblem) -> bool:
        return problem.precision == "high" or not is_complex(problem)

    def work_items(self, config: TileConfig) -> int:
        return _WORK_ITEMS

    def most_stages(self, bm: int, bn: int, device: DeviceInfo) -> int:
        handed = 128 * bn * 2 if bm == _SAME_ROWS else 0
        room = local_bytes(device) - _OTHER_LOCAL_BYTES - handed
        return min(4, room // (_BLOCKS * (bm + bn) * BLOCK_BYTES))

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """Seconds of the three launches: the waves of work-groups at the rate of the tile, and splitting."""
        real, rates = as_real(problem), device.rates
        waves = ceil(tiles_of(real, config.bm, config.bn) * problem.batch / device.units)
        if is_complex(problem) and problem.precision == "medium":
            rate = rates.matrix(TF32.unit) * _ONE_PART
        else:
            rate = rates.matrix(FLOAT16.unit) * _THREE_PARTS
        rate *= _TILES[config.bm, config.bn] / device.units
        blocks = ceil(real.k / (_BLOCKS * config.bk))
        each = blocks * max(config.bm * config.bn * _BLOCKS * config.bk / rate, _BLOCK) + _TILE_SECONDS
        seconds = together(waves * each, rates.moved(real.nbytes))
        return rates.launch + _START_SECONDS + seconds + splitting_seconds(real, device)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        # Each work-group computes tiles until none are left
        groups = min(tiles_of(as_real(problem), config.bm, config.bn), device.compute_units)
        maps = Workspace("maps", groups * problem.batch * MAP_BYTES, zeroed=True)

        def product(split: int, extra: tuple[Arg, ...]) -> Launch:
            defines: Defines = (
                *(("BM", config.bm), ("BN", config.bn), ("STAGES", config.stages), ("BLOCKS", _BLOCKS)),
                *(("ELEMENT", unit_of(split).name), ("ACROSS_A", 0), ("ACROSS_B", 0), ("SPLIT_K", 0)),
                ("GROUP", config.option("group", 8)),
                *split_defines(problem, split),
                *out_defines(problem),
            )
            program = gemm_program(problem, "nvidia/wgmma_split.cl", defines, ptx_target="sm_90a")
            args = (maps.symbol, *packed_args(problem, split), *extra)
            size, local = (groups * _WORK_ITEMS,), (_WORK_ITEMS,)
            return gemm_launch(problem, program, "matmul_wgmma_split", size, local, args)

        if is_complex(problem) and problem.precision == "medium":
            return one_pass(problem, product(0, ()), (maps,))
        return in_parts(problem, product, (maps,))
