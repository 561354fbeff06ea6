"""`wgmma`: the matrix units of NVIDIA's sm_90a, fed from local memory by the copy engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from ..config import TileConfig
from ..device import DeviceInfo
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
    local_range,
    ndrange,
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
    *("units.h", "shares.h", "wgmma.cl"),
)
CAPABILITY = (9, 0)  # sm_90a runs on no other
_MAP_BYTES = 384  # MAP_SLOT of cl/ptx_map.h
_OTHER_LOCAL_BYTES = 256 + 128 + 64 + 1024  # tensor maps, barriers, numbers, alignment
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
_ALTERNATE_TILES = ((128, 128), (64, 256), (64, 128))  # those of which a quartet can hold one by itself
_TILE_SECONDS = 2e-6  # a tile's start and end, beside its multiplications
_SHARE_SECONDS = 1.5e-6  # two sums meet
_RATE = 2.8e12  # float16 multiplications a second and compute unit, H200


def stage_bytes(config: TileConfig, parts: int = 1) -> int:
    """Local memory of one block of A and B."""
    return (config.bm + config.bn) * 128 * parts


@dataclass(frozen=True)
class Division:
    """How tiles are dealt out (cl/units.h): ``whole`` of ``tiles`` are not cut, the others into ``shares``."""

    tiles: int
    whole: int
    shares: int

    @property
    def units(self) -> int:
        return self.whole + (self.tiles - self.whole) * self.shares

    @classmethod
    def of(cls, problem: GemmProblem, config: TileConfig, device: DeviceInfo, stack: int) -> Division:
        """Whole tiles in full waves of work-groups; with SPLIT_K over 1, what is left of them is cut."""
        tiles = ceil(problem.m / config.bm) * ceil(problem.n / config.bn) * stack
        whole = tiles // device.compute_units * device.compute_units if config.split_k > 1 else tiles
        return cls(tiles, whole, config.split_k)


def stacked(problem: GemmProblem) -> int:
    """Products of a stack that one set of work-groups goes through; 1 where each has its own."""
    even = all(_evenly_apart(problem, problem.batch_strides[which]) for which in (0, 1))
    return problem.batch if even and problem.m * problem.n * problem.batch < 2**40 else 1


def _evenly_apart(problem: GemmProblem, strides: tuple[int, ...]) -> bool:
    """Whether operand z of a stack lies z times some distance behind the first."""
    axes = [(n, s) for n, s in zip(problem.batch_shape, strides, strict=True) if n > 1]
    last = axes[-1][1] if axes else 0
    counted = 1
    for length, stride in reversed(axes):
        if stride != last * counted:
            return False
        counted *= length
    return 0 <= last < 2**32


def groups(division: Division, device: DeviceInfo) -> int:
    """Work-groups: each computes tiles until there are no more."""
    return min(division.units, device.compute_units)


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
        seconds += _SHARE_SECONDS * (shares - 1).bit_length()
    return seconds


def tile_configs(
    problem: GemmProblem, device: DeviceInfo, nbytes: int, tiles: Sequence[tuple[int, int]], parts: int = 1
) -> list[TileConfig]:
    """A configuration for each tile that fits, the one that the model likes best first."""
    room = local_bytes(device) - _OTHER_LOCAL_BYTES
    found = []
    for bm, bn in tiles:
        config = TileConfig(bm=bm, bn=bn, bk=128 // nbytes, options=(("alternate", 0), ("group", 8)))
        config = replace(config, stages=min(8, room // stage_bytes(config, parts)))
        if config.stages >= 2:
            found.append(config)
            found += [] if parts > 1 else _variants(problem, config, device)
    return sorted(found, key=lambda c: estimated_seconds(problem, c, device, nbytes, parts))


def _variants(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Iterator[TileConfig]:
    """The same tile with quartets that alternate, and with K in shares."""
    ways = [config]
    if (config.bm, config.bn) in _ALTERNATE_TILES:
        ways.append(replace(config, options=(("alternate", 1), ("group", 8))))
    yield from ways[1:]
    shares = _shares(problem, config, device)
    if shares > 1:
        yield from (replace(c, split_k=shares) for c in ways)


def _shares(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Shares of K, of two blocks or more, that give every compute unit one in the last wave."""
    left = Division.of(problem, config, device, stacked(problem)).tiles % device.compute_units
    return min(device.compute_units // left, problem.k // (2 * config.bk), 64) if left else 1


def tile_violations(config: TileConfig, device: DeviceInfo, nbytes: int, parts: int = 1) -> list[str]:
    """Why cl/wgmma.cl cannot be built with *config*."""
    reasons = config.violations(device, (work_items(config),), 0)
    if (config.bm, config.bn) not in _TILES or config.bk != 128 // nbytes:
        reasons.append(f"wgmma has tiles of {list(_TILES)} x {128 // nbytes}, not {config}")
    if not 1 <= config.split_k <= (1 if parts > 1 else 64):
        reasons.append(f"split_k must be 1 to 64, and 1 for split operands: {config}")
    if config.option("alternate") and ((config.bm, config.bn) not in _ALTERNATE_TILES or parts > 1):
        reasons.append(f"quartets alternate on tiles of {_ALTERNATE_TILES}, not {config}")
    needed = config.stages * stage_bytes(config, parts) + _OTHER_LOCAL_BYTES
    if config.stages < 2 or needed > local_bytes(device):
        reasons.append(f"{config.stages} stages take {needed} bytes of local memory: 2 to as many as fit")
    return reasons


def work_items(config: TileConfig) -> int:
    """A work-group's size: a quartet of sub-groups that copies, and those that multiply."""
    return 128 * (1 + (2 if config.option("alternate") else config.bm // 64))


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
        *(("SPLIT_K", int(config.split_k > 1)), ("ALTERNATE", config.option("alternate"))),
        *out_defines(problem),
    )
    stack = stacked(problem) if not split else 1
    division = Division.of(problem, config, device, stack)
    over = groups(division, device) * work_items(config)
    return Launch(
        Program(SOURCES, (*gemm_defines(problem), *defines), ptx_target="sm_90a"),
        "matmul_wgmma",
        (over,) if stack > 1 else ndrange(problem, over),
        (work_items(config),) if stack > 1 else local_range(problem, work_items(config)),
        (
            *gemm_args(problem),
            "workspace:maps",
            *(("workspace:partial", "workspace:arrivals") if config.split_k > 1 else ("workspace:maps",) * 2),
            *map(np.int32, (division.whole, division.shares, stack)),
            *operands.args(problem),
            *extra,
        ),
    )


def _shares_workspace(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> tuple[Workspace, ...]:
    """Sums on their way to other work-groups, and how many have come to each node of cl/shares.h."""
    division = Division.of(problem, config, device, stacked(problem))
    if config.split_k == 1:
        return ()
    slots = max(1, (division.tiles - division.whole) * division.shares * (problem.batch // stacked(problem)))
    sums = Workspace("partial", 4 * config.bm * config.bn * slots)
    return sums, Workspace("arrivals", 4 * (config.bm // 64) * slots, zeroed=True)


def maps_workspace(problem: GemmProblem, config: TileConfig, device: DeviceInfo, stack: int = 1) -> Workspace:
    """The tensor maps of all work-groups, one set of which goes through `stack` products."""
    sets = problem.batch // stack
    each = groups(Division.of(problem, config, device, stack), device) * _MAP_BYTES
    return Workspace("maps", sets * each, zeroed=True)


class Wgmma(Kernel):
    """See cl/wgmma.cl. BM x BN is a tile, BK 128 bytes of K; SPLIT_K: into how many shares K is cut where
    tiles are too few for a wave; options ``group``: rows of tiles that are computed together, ``alternate``:
    quartets of sub-groups have tiles of their own.
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
        maps = maps_workspace(problem, config, device, stacked(problem))
        product = wgmma_launch(problem, config, device, operands)
        return Work(
            (*pack_launches(problem, device, operands), product),
            (maps, *_shares_workspace(problem, config, device), *operands.workspace(problem)),
        )

    def _unit(self, problem: GemmProblem) -> Unit | str:
        return unit_for(problem, "WGMMA")
