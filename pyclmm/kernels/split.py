"""`split`: float32's accuracy and complex numbers on matrix units: operands split into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from ..config import TileConfig
from ..device import DeviceInfo
from ..problem import GemmProblem
from .base import (
    GEMM_H,
    TYPES_H,
    Arg,
    Kernel,
    Launch,
    Program,
    Work,
    Workspace,
    gemm_args,
    gemm_defines,
    local_range,
    ndrange,
    round_up,
)
from .matrix_units import (
    FLOAT16,
    LINE_ALIGN,
    TF32,
    Unit,
    compute_capability,
    local_bytes,
    out_defines,
    too_long,
)
from .wgmma import CAPABILITY

SOURCES = (
    *(TYPES_H, GEMM_H, "ptx_copy.h", "ptx_map.h", "ptx_wgmma.h", "ptx_group.h", "split.h", "split_guard.h"),
    *("fragment.h", "tile_order.h"),
    "wgmma_split.cl",
)
LINES = 8  # of cl/split.h: what a work-group splits
SPLIT_ITEMS = 256  # WORK_ITEMS of cl/split.cl
WORK_ITEMS = 384  # of cl/wgmma_split.cl
# Tiles, and the share of the full rate that each reached on an H200.
_TILES = {(128, 128): 1.0, (64, 128): 0.9, (128, 64): 0.65}
_RATE = 0.9e12  # multiplications of float32 by three of float16, a second and compute unit, H200
_TILE_SECONDS = 2e-6  # a tile's start and end, beside its multiplications
_BLOCK_BYTES = 128
_TWO_GROUPS = ("-cl-nv-maxrregcount=128",)  # of cl/split.cl at a time on a compute unit
_MAP_BYTES = 384  # MAP_SLOT of cl/ptx_map.h, of a work-group
_OTHER_LOCAL_BYTES = 256 + 128 + 1024  # tensor maps, barriers, alignment
_SAME_ROWS = 64  # BM at which both quartets have the same rows, and sums to hand over


def is_complex(problem: GemmProblem) -> bool:
    """Whether it is a product of complex numbers."""
    return problem.acc_type == "complex64"


def as_real(problem: GemmProblem) -> GemmProblem:
    """The real product that *problem* is computed as: M x 2N x 2K of a complex one, see cl/split.cl."""
    return replace(problem, n=2 * problem.n, k=2 * problem.k) if is_complex(problem) else problem


def pitch(problem: GemmProblem, unit: Unit, parts: int) -> int:
    """Elements of a packed line: whole blocks of both parts, or whole accesses of one."""
    if parts == 1:
        return round_up(as_real(problem).k, 64 // unit.nbytes)
    return round_up(as_real(problem).k * parts, _BLOCK_BYTES // unit.nbytes)


class Split(Kernel):
    """See cl/split.h. "high": scaled float16 parts, their product if they serve, else TF32 parts and theirs:
    four launches, of which the last two return at once if the float16 parts did. "medium", complex64 only:
    the real operands, and their product in TF32.
    """

    name = "split"
    summary = (
        'float32 with precision="high", complex64 with "high" and "medium", in parts on the units of sm_90a'
    )
    risky = True

    def supports(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if compute_capability(device) != CAPABILITY:
            return "split needs an NVIDIA device of compute capability 9.0"
        types = {problem.a_type, problem.b_type, problem.acc_type}
        if types not in ({"float32"}, {"complex64"}):
            return "split multiplies float32 by float32 or complex64 by complex64"
        words = ("high", "medium") if is_complex(problem) else ("high",)
        if problem.precision not in words:
            return f"split is for precision={' or '.join(words)}, not {problem.precision!r}"
        return too_long(as_real(problem), 2**29) or device.missing_type(problem.types)

    def configs(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        found = [_config(bm, bn, device) for bm, bn in _TILES]
        return sorted(found, key=lambda c: estimated_seconds(problem, c, device))

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = config.violations(device, (WORK_ITEMS,), 0)
        if (config.bm, config.bn) not in _TILES or config.split_k != 1:
            reasons.append(f"split has tiles of {list(_TILES)} and no shares of K, not {config}")
        elif not 2 <= config.stages <= _most_stages(config.bm, config.bn, device):
            reasons.append(f"{config.stages} stages: 2 to as many as fit in local memory")
        return reasons

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        real = as_real(problem)
        maps = Workspace("maps", groups(problem, config, device) * problem.batch * _MAP_BYTES, zeroed=True)
        if problem.precision == "medium":
            one_pass = (_splitting(problem, 0, ()), _product(problem, config, device, 0, ()))
            return Work(one_pass, (maps, *_packed(real, TF32, 1)))
        exponents = Workspace("exponents", 4 * (real.m + real.n) * problem.batch)
        quality = Workspace("quality", 8 * _line_groups(real) * problem.batch)
        done = Workspace("done", 4 * problem.batch)
        known = (exponents.symbol, quality.symbol)
        work = (
            _splitting(problem, 1, known),
            _product(problem, config, device, 1, (*known, done.symbol)),
            _splitting(problem, 2, (done.symbol,)),
            _product(problem, config, device, 2, (exponents.symbol, done.symbol)),
        )
        # TF32 parts go where the float16 parts, which are smaller, have been
        return Work(work, (maps, *_packed(real, TF32, 2), exponents, quality, done))


def _most_stages(bm: int, bn: int, device: DeviceInfo) -> int:
    handed = 128 * bn * 2 if bm == _SAME_ROWS else 0
    return min(8, (local_bytes(device) - _OTHER_LOCAL_BYTES - handed) // ((bm + bn) * _BLOCK_BYTES))


def _config(bm: int, bn: int, device: DeviceInfo) -> TileConfig:
    stages = _most_stages(bm, bn, device)
    return TileConfig(bm=bm, bn=bn, bk=_BLOCK_BYTES // 4, stages=stages, options=(("group", 8),))


def groups(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Work-groups of one product: each computes tiles until there are no more."""
    return min(_tiles(problem, config), device.compute_units)


def _tiles(problem: GemmProblem, config: TileConfig) -> int:
    return ceil(problem.m / config.bm) * ceil(as_real(problem).n / config.bn)


def estimated_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """The model that orders tiles: waves of work-groups, each at its tile's rate."""
    waves = ceil(_tiles(problem, config) * problem.batch / device.compute_units)
    work = config.bm * config.bn * as_real(problem).k
    return waves * (work / (_RATE * _TILES[config.bm, config.bn]) + _TILE_SECONDS)


def _unit(split: int) -> Unit:
    return FLOAT16 if split == 1 else TF32


def _packed(real: GemmProblem, unit: Unit, parts: int) -> tuple[Workspace, ...]:
    line = round_up(real.k * parts, _BLOCK_BYTES // unit.nbytes) * unit.nbytes * real.batch
    return (Workspace("packed_a", real.m * line), Workspace("packed_b", real.n * line))


def _packed_args(problem: GemmProblem, split: int) -> tuple[Arg, ...]:
    line = pitch(problem, _unit(split), 2 if split else 1)
    return ("workspace:packed_a", "workspace:packed_b", np.int64(line))


def _line_groups(real: GemmProblem) -> int:
    """Work-groups that split one product's operands."""
    return ceil(real.m / LINES) + ceil(real.n / LINES)


def _splitting(problem: GemmProblem, split: int, extra: tuple[Arg, ...]) -> Launch:
    """The launch of cl/split.cl."""
    wide = (("WIDE_A", problem.a_align), ("WIDE_B", problem.b_align))
    defines = (("SPLIT", split), *((name, int(align >= LINE_ALIGN)) for name, align in wide))
    return Launch(
        Program(
            (TYPES_H, GEMM_H, "ptx_group.h", "split.h", "split.cl"),
            (*gemm_defines(problem), *defines),
            _TWO_GROUPS,
        ),
        "matmul_split",
        ndrange(problem, _line_groups(as_real(problem)) * SPLIT_ITEMS),
        local_range(problem, SPLIT_ITEMS),
        (*gemm_args(problem), *_packed_args(problem, split), *extra),
    )


def _product(
    problem: GemmProblem, config: TileConfig, device: DeviceInfo, split: int, extra: tuple[Arg, ...]
) -> Launch:
    """The launch of cl/wgmma_split.cl."""
    unit = _unit(split)
    defines = (
        *(("BM", config.bm), ("BN", config.bn), ("WGMMA_N", config.bn), ("STAGES", config.stages)),
        *(("GROUP", config.option("group", 8)), ("ELEMENT_BYTES", unit.nbytes), ("MAP_TYPE", unit.map_type)),
        *(("WGMMA_TYPE", unit.code), ("WGMMA_ACROSS_A", 0), ("WGMMA_ACROSS_B", 0), ("SPLIT", split)),
        *out_defines(problem),
    )
    return Launch(
        Program(SOURCES, (*gemm_defines(problem), *defines), ptx_target="sm_90a"),
        "matmul_wgmma_split",
        ndrange(problem, groups(problem, config, device) * WORK_ITEMS),
        local_range(problem, WORK_ITEMS),
        (*gemm_args(problem), "workspace:maps", *_packed_args(problem, split), *extra),
    )
