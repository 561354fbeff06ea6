"""`split`: float32's accuracy and complex numbers on matrix units, by operands split into parts."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, Accepts, Types
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import (
    Arg,
    Defines,
    Kernel,
    Launch,
    Program,
    Work,
    Workspace,
    gemm_args,
    gemm_defines,
    local_range,
    ndrange,
)
from ..matrix_unit import unit_named
from .matrix_units import FLOAT16, MAP_BYTES, TF32, local_bytes, out_defines
from .parts import (
    BLOCK_BYTES,
    as_real,
    in_parts,
    is_complex,
    one_pass,
    packed_args,
    split_defines,
    too_long_in_parts,
    unit_of,
)
from .unit_cost import splitting_seconds

SOURCE = "nvidia/wgmma_split.cl"
WORK_ITEMS = 384  # of cl/nvidia/wgmma_split.cl
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


class Split(Kernel):
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
    options = ("group",)
    matrix_units = True
    tiles_in_turn = True

    def unsuited(self, device: DeviceInfo) -> str | None:
        return unit_named("wgmma").lacking(self.name, device.vendor, device.marks)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return too_long_in_parts(problem)

    def in_parts(self, problem: GemmProblem) -> bool:
        return problem.precision == "high" or not is_complex(problem)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return [_config(bm, bn, device) for bm, bn in _TILES]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        return estimated_seconds(problem, config, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = config.violations(device, (WORK_ITEMS,), 0)
        if (config.bm, config.bn) not in _TILES or config.split_k != 1:
            reasons.append(f"split has tiles of {list(_TILES)} and no split-K, not {config}")
        elif not 2 <= config.stages <= _most_stages(config.bm, config.bn, device):
            reasons.append(f"{config.stages} stages: use 2 or more, as many as fit in local memory")
        return reasons

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        maps = Workspace("maps", groups(problem, config, device) * problem.batch * MAP_BYTES, zeroed=True)

        def product(split: int, extra: tuple[Arg, ...]) -> Launch:
            return _product(problem, config, device, split, extra)

        if is_complex(problem) and problem.precision == "medium":
            return one_pass(problem, product(0, ()), (maps,))
        return in_parts(problem, product, (maps,))


def _most_stages(bm: int, bn: int, device: DeviceInfo) -> int:
    handed = 128 * bn * 2 if bm == _SAME_ROWS else 0
    return min(4, (local_bytes(device) - _OTHER_LOCAL_BYTES - handed) // (_BLOCKS * (bm + bn) * BLOCK_BYTES))


def _config(bm: int, bn: int, device: DeviceInfo) -> TileConfig:
    stages = _most_stages(bm, bn, device)
    return TileConfig(bm=bm, bn=bn, bk=BLOCK_BYTES // 4, stages=stages, options=(("group", 8),))


def groups(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Work-groups of one product. Each computes tiles until none are left."""
    return min(_tiles(problem, config), device.compute_units)


def _tiles(problem: GemmProblem, config: TileConfig) -> int:
    return ceil(problem.m / config.bm) * ceil(as_real(problem).n / config.bn)


def estimated_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Seconds of the three launches: the waves of work-groups at the rate of the tile, and splitting."""
    real, rates, one = as_real(problem), device.rates, is_complex(problem) and problem.precision == "medium"
    waves = ceil(_tiles(problem, config) * problem.batch / device.units)
    rate = rates.matrix(TF32.unit) * _ONE_PART if one else rates.matrix(FLOAT16.unit) * _THREE_PARTS
    rate *= _TILES[config.bm, config.bn] / device.units
    blocks = ceil(real.k / (_BLOCKS * config.bk))
    each = blocks * max(config.bm * config.bn * _BLOCKS * config.bk / rate, _BLOCK) + _TILE_SECONDS
    seconds = together(waves * each, rates.moved(real.nbytes))
    return rates.launch + _START_SECONDS + seconds + splitting_seconds(real, device)


def _product(
    problem: GemmProblem, config: TileConfig, device: DeviceInfo, split: int, extra: tuple[Arg, ...]
) -> Launch:
    """The launch of cl/nvidia/wgmma_split.cl."""
    defines: Defines = (
        *(("BM", config.bm), ("BN", config.bn), ("STAGES", config.stages), ("BLOCKS", _BLOCKS)),
        *(("ELEMENT", unit_of(split).name), ("ACROSS_A", 0), ("ACROSS_B", 0), ("SPLIT_K", 0)),
        ("GROUP", config.option("group", 8)),
        *split_defines(problem, split),
        *out_defines(problem),
    )
    return Launch(
        Program(SOURCE, (*gemm_defines(problem), *defines), ptx_target="sm_90a"),
        "matmul_wgmma_split",
        ndrange(problem, groups(problem, config, device) * WORK_ITEMS),
        local_range(problem, WORK_ITEMS),
        (*gemm_args(problem), "workspace:maps", *packed_args(problem, split), *extra),
    )
