"""`mma_split`: what `split` does, by instructions that need no rewriting of the program."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import (
    Arg,
    Kernel,
    Launch,
    Program,
    Work,
    gemm_args,
    gemm_defines,
    local_range,
    ndrange,
)
from .matrix_units import compute_capability, local_bytes, out_defines
from .parts import (
    BLOCK_BYTES,
    as_real,
    in_parts,
    packed_args,
    refusal,
    split_defines,
    unit_of,
)

SOURCE = "nvidia/mma_split.cl"
# Elsewhere float32 units are no slower than three passes of the matrix units.
CAPABILITIES = ((8, 0), (9, 0))
_TILES = ((128, 128, 64, 32), (64, 64, 32, 32))  # BM, BN, SGM, SGN


class MmaSplit(Kernel):
    """See cl/nvidia/mma_split.cl. BM x BN is a work-group's tile, SGM x SGN a sub-group's."""

    name = "mma_split"
    summary = 'float32 and complex64 with precision="high" in parts on the matrix units of sm_80'
    options = ("group",)
    matrix_units = True

    def supports(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if compute_capability(device) not in CAPABILITIES:
            return "mma_split needs an NVIDIA device of compute capability 8.0 or 9.0"
        return refusal(problem, ("high",), ("high",)) or device.missing_type(problem.types)

    def configs(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        found = [_config(*tile, device) for tile in _TILES]
        return sorted(found, key=lambda c: 2 * _tiles(problem, c) * problem.batch <= device.compute_units)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if (config.bm, config.bn, config.sgm, config.sgn) not in _TILES or config.split_k != 1:
            return [f"mma_split has tiles of {_TILES} and no shares of K, not {config}"]
        if not 2 <= config.stages <= _most_stages(config.bm, config.bn, device):
            return [f"{config.stages} stages: 2 to as many as fit in local memory"]
        return config.violations(device, (_work_items(config),), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        def product(split: int, extra: tuple[Arg, ...]) -> Launch:
            return _product(problem, config, split, extra)

        return in_parts(problem, product, ())


def _most_stages(bm: int, bn: int, device: DeviceInfo) -> int:
    return min(4, (local_bytes(device) - 1024) // ((bm + bn) * BLOCK_BYTES))


def _config(bm: int, bn: int, sgm: int, sgn: int, device: DeviceInfo) -> TileConfig:
    stages, bk = _most_stages(bm, bn, device), BLOCK_BYTES // 4
    return TileConfig(bm=bm, bn=bn, bk=bk, sgm=sgm, sgn=sgn, stages=stages, options=(("group", 8),))


def _work_items(config: TileConfig) -> int:
    return 32 * (config.bm // config.sgm) * (config.bn // config.sgn)


def _tiles(problem: GemmProblem, config: TileConfig) -> int:
    return ceil(problem.m / config.bm) * ceil(as_real(problem).n / config.bn)


def _product(problem: GemmProblem, config: TileConfig, split: int, extra: tuple[Arg, ...]) -> Launch:
    """The launch of cl/nvidia/mma_split.cl."""
    unit = unit_of(split)
    defines = (
        *(("BM", config.bm), ("BN", config.bn), ("SGM", config.sgm), ("SGN", config.sgn)),
        *(("STAGES", config.stages), ("GROUP", config.option("group", 8))),
        *(("ELEMENT_BYTES", unit.nbytes), ("MMA_TYPE", unit.code)),
        *split_defines(problem, split),
        *out_defines(problem),
    )
    return Launch(
        Program(SOURCE, (*gemm_defines(problem), *defines)),
        "matmul_mma_split",
        ndrange(problem, _tiles(problem, config) * _work_items(config)),
        local_range(problem, _work_items(config)),
        (*gemm_args(problem), *packed_args(problem, split), *extra),
    )
