"""`wgmma`: the matrix units of NVIDIA's sm_90a, fed from local memory by the copy engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from ..config import TileConfig
from ..device import DeviceInfo
from ..dtypes import dtype_of
from ..errors import UnsupportedError
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
    gemm_program,
    local_range,
    ndrange,
    round_up,
)
from .matrix_units import (
    Defines,
    Operands,
    Unit,
    compute_capability,
    local_bytes,
    out_defines,
    pack_launches,
    too_long,
    unit_for,
)

SOURCES = (
    *(TYPES_H, GEMM_H, "ptx_copy.h", "ptx_map.h", "ptx_wgmma.h", "split.h", "fragment.h", "tile_order.h"),
    "wgmma.cl",
)
CAPABILITY = (9, 0)  # sm_90a runs on no other
_MAP_BYTES = 256  # the tensor maps of a work-group
_OTHER_LOCAL_BYTES = 256 + 128 + 1024  # tensor maps, barriers, alignment
# Tiles, and the share of the full rate that each reached on an H200 where it divides the work.
_TILES = {
    (128, 256): 1.0,
    (128, 192): 0.97,
    (256, 128): 0.98,
    (128, 128): 0.94,
    (64, 256): 0.91,
    (64, 128): 0.86,
}
_TILES |= {(128, 64): 0.61, (64, 64): 0.5}
_TILE_SECONDS = 2e-6  # a tile's start and end, beside its multiplications
_REDUCE_SECONDS, _REDUCE_RATE = 5e-6, 2e12  # one more launch; bytes a second of partial sums
_RATE = 2.8e12  # float16 multiplications a second and compute unit, H200


def stage_bytes(config: TileConfig, parts: int = 1) -> int:
    """Local memory of one block of A and B."""
    return (config.bm + config.bn) * 128 * parts


def groups(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Work-groups of one product: each computes tiles until there are no more."""
    tiles = ceil(problem.m / config.bm) * ceil(problem.n / config.bn) * config.split_k
    return min(tiles, device.compute_units)


def estimated_seconds(
    problem: GemmProblem, config: TileConfig, device: DeviceInfo, nbytes: int, parts: int = 1
) -> float:
    """The model that orders tiles: waves of work-groups, each at its tile's rate."""
    shares = config.split_k
    tiles = ceil(problem.m / config.bm) * ceil(problem.n / config.bn) * problem.batch * shares
    waves = ceil(tiles / device.compute_units)
    rate = _RATE * _TILES[config.bm, config.bn] * 2 / nbytes / (2 * parts - 1)
    seconds = waves * (config.bm * config.bn * problem.k / shares / rate + _TILE_SECONDS)
    if shares > 1:
        seconds += _REDUCE_SECONDS + 8 * shares * problem.m * problem.n * problem.batch / _REDUCE_RATE
    return seconds


def tile_configs(
    problem: GemmProblem, device: DeviceInfo, nbytes: int, tiles: Sequence[tuple[int, int]], parts: int = 1
) -> list[TileConfig]:
    """A configuration for each tile that fits, the one that the model likes best first."""
    room = local_bytes(device) - _OTHER_LOCAL_BYTES
    found = []
    for bm, bn in tiles:
        config = TileConfig(bm=bm, bn=bn, bk=128 // nbytes, options=(("group", 8),))
        stages = min(8, room // stage_bytes(config, parts))
        if stages >= 2:
            found.append(replace(config, stages=stages))
            shares = _shares(problem, config, device) if parts == 1 else 1
            if shares > 1:
                found.append(replace(config, stages=stages, split_k=shares))
    return sorted(found, key=lambda c: estimated_seconds(problem, c, device, nbytes, parts))


def _shares(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Shares of K that give every compute unit a tile, of four blocks or more."""
    tiles = ceil(problem.m / config.bm) * ceil(problem.n / config.bn) * problem.batch
    return min(device.compute_units // tiles, problem.k // (4 * config.bk), 16)


def tile_violations(config: TileConfig, device: DeviceInfo, nbytes: int, parts: int = 1) -> list[str]:
    """Why cl/wgmma.cl cannot be built with *config*."""
    reasons = config.violations(device, (work_items(config),), 0)
    if (config.bm, config.bn) not in _TILES or config.bk != 128 // nbytes:
        reasons.append(f"wgmma has tiles of {list(_TILES)} x {128 // nbytes}, not {config}")
    if not 1 <= config.split_k <= (1 if parts > 1 else 64):
        reasons.append(f"split_k must be 1 to 64, and 1 for split operands: {config}")
    needed = config.stages * stage_bytes(config, parts) + _OTHER_LOCAL_BYTES
    if config.stages < 2 or needed > local_bytes(device):
        reasons.append(f"{config.stages} stages take {needed} bytes of local memory: 2 to as many as fit")
    return reasons


def work_items(config: TileConfig) -> int:
    """A work-group's size: a quartet of sub-groups that copies, one for each 64 rows."""
    return 128 * (config.bm // 64 + 1)


def wgmma_launch(
    problem: GemmProblem,
    config: TileConfig,
    device: DeviceInfo,
    operands: Operands,
    split: int = 0,
    extra: tuple[Arg, ...] = (),
) -> Launch:
    """The launch of cl/wgmma.cl over operands that are packed where they have to be."""
    unit = operands.unit
    defines: Defines = (
        *(("BM", config.bm), ("BN", config.bn), ("WGMMA_N", config.bn), ("STAGES", config.stages)),
        *(("GROUP", config.option("group", 8)), ("ELEMENT_BYTES", unit.nbytes), ("MAP_TYPE", unit.map_type)),
        *(("WGMMA_TYPE", unit.code), *unit.defines),
        *(("WGMMA_ACROSS_A", int(operands.across_a)), ("WGMMA_ACROSS_B", int(operands.across_b))),
        *(("PACKED_A", int(operands.pack_a)), ("PACKED_B", int(operands.pack_b))),
        *(("PARTS", 2 if split else 1), ("PROMOTE", int(split > 0)), ("SPLIT", split)),
        ("SPLIT_K", int(config.split_k > 1)),
        *out_defines(problem),
    )
    return Launch(
        Program(SOURCES, (*gemm_defines(problem), *defines), ptx_target="sm_90a"),
        "matmul_wgmma",
        ndrange(problem, groups(problem, config, device) * work_items(config)),
        local_range(problem, work_items(config)),
        (*gemm_args(problem), "workspace:maps", *_shares_args(config), *operands.args(problem), *extra),
    )


def _shares_args(config: TileConfig) -> tuple[Arg, ...]:
    """Where shares of K go, and how many there are; out stands in where nothing is cut."""
    return ("workspace:partial" if config.split_k > 1 else "out", np.int32(config.split_k))


def _reduce(problem: GemmProblem, config: TileConfig) -> tuple[Launch, Workspace]:
    """The launch of cl/reduce.cl, and what it reads."""
    pitch = round_up(problem.n, 2)
    size = dtype_of(problem.acc_type).itemsize * problem.m * pitch * config.split_k * problem.batch
    partial = Workspace("partial", size)
    launch = Launch(
        gemm_program(problem, "reduce.cl"),
        "matmul_reduce",
        ndrange(problem, round_up(problem.n, 64), round_up(problem.m, 4)),
        local_range(problem, 64, 4),
        (*gemm_args(problem), partial.symbol, np.int32(config.split_k), np.int64(pitch)),
    )
    return launch, partial


def maps_workspace(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Workspace:
    """The tensor maps of all work-groups."""
    return Workspace("maps", groups(problem, config, device) * problem.batch * _MAP_BYTES)


class Wgmma(Kernel):
    """See cl/wgmma.cl. BM x BN is a work-group's tile, BK 128 bytes of K; SPLIT_K shares of K, added by
    cl/reduce.cl; option ``group``: rows of tiles that are computed together.
    """

    name = "wgmma"
    summary = "matrix units of sm_90a (wgmma), tiles of local memory filled by the copy engine"
    risky = True

    def supports(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if compute_capability(device) != CAPABILITY:
            return "wgmma needs an NVIDIA device of compute capability 9.0"
        unit = self._unit(problem)
        if isinstance(unit, str):
            return unit
        return too_long(problem) or device.missing_type(problem.types)

    def configs(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        unit = self._unit(problem)
        return [] if isinstance(unit, str) else tile_configs(problem, device, unit.nbytes, list(_TILES))

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        unit = self._unit(problem)
        return [unit] if isinstance(unit, str) else tile_violations(config, device, unit.nbytes)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        unit = self._unit(problem)
        if isinstance(unit, str):
            raise UnsupportedError(unit)
        operands = Operands.of(problem, unit)
        workspace = (maps_workspace(problem, config, device), *operands.workspace(problem))
        product = wgmma_launch(problem, config, device, operands)
        launches = (*pack_launches(problem, device, operands), product)
        if config.split_k > 1:
            reduction, partial = _reduce(problem, config)
            launches, workspace = (*launches, reduction), (*workspace, partial)
        return Work(launches, workspace)

    def _unit(self, problem: GemmProblem) -> Unit | str:
        return unit_for(problem, "WGMMA")
