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
    *(TYPES_H, GEMM_H, "ptx_copy.h", "ptx_map.h", "ptx_wgmma.h", "fragment.h", "tile_order.h"),
    *("units.h", "shares.h", "wgmma.cl"),
)
CAPABILITY = (9, 0)  # sm_90a runs on no other
MAP_BYTES = 384  # MAP_SLOT of cl/ptx_map.h
_OTHER_LOCAL_BYTES = 256 + 128 + 64 + 1024  # tensor maps, barriers, numbers, alignment
# Tiles, and by how much each is slower on an H200 than the arithmetic below says.
_TILES = {
    (128, 256): 1.0,
    (128, 192): 1.15,
    (256, 128): 1.06,
    (128, 128): 1.15,
    (64, 256): 1.05,
    (64, 128): 1.08,
    (128, 64): 1.03,
    (64, 64): 1.08,
}
_ALTERNATE_TILES = ((128, 128), (64, 256), (64, 128))  # those of which a quartet can hold one by itself
# The arithmetic's constants, in seconds of an H200 with all compute units at work (driver 580.159.04):
_MULTIPLY = 0.68e-6 / (128 * 256)  # a block of 128 bytes of K, an element of the tile
_COPY_A, _COPY_B = 1.5e-9, 1.1e-9  # 128 bytes of a line on their way to local memory
_STORE, _STORE_ELEMENT = 0.3e-6, 1.7e-6 / 16384  # a tile's end; an element that a quartet stores
_START = 1.3e-6  # until the first block has come
_LAUNCH = 3.3e-6  # a launch with nothing in it
_READ, _WRITE = 1 / 4.3e12, 1 / 2.3e12  # a byte of the operands, of the result
_PARTIAL = 1 / 3e12  # a byte of shares of K, there or back
_MOST_SHARES = 64
_SHARES_EACH = 8  # that a work-item adds in cl/shares.cl: so many accesses are in flight


def stage_bytes(config: TileConfig) -> int:
    """Local memory of one block of A and B."""
    return (config.bm + config.bn) * 128


@dataclass(frozen=True)
class Division:
    """How the tiles of a stack are dealt out (cl/units.h): ``whole`` of them are not cut, the others are,
    into ``shares``.
    """

    tiles: int
    whole: int
    shares: int
    stack: int

    @property
    def cut(self) -> int:
        return self.tiles - self.whole

    @property
    def args(self) -> tuple[Arg, ...]:
        """The kernels' whole, shares and stack."""
        return (np.int32(self.whole), np.int32(self.shares), np.int32(self.stack))

    def groups(self, device: DeviceInfo) -> int:
        """Work-groups: each computes units until there are no more."""
        return min(self.whole + self.cut * self.shares, device.compute_units)

    @classmethod
    def of(cls, problem: GemmProblem, config: TileConfig, device: DeviceInfo, stack: int) -> Division:
        """Whole tiles in full waves of work-groups; with SPLIT_K over 1, what is left of them is cut."""
        tiles = ceil(problem.m / config.bm) * ceil(problem.n / config.bn) * stack
        whole = tiles // device.compute_units * device.compute_units if config.split_k > 1 else tiles
        return cls(tiles, whole, config.split_k, stack)


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


def block_seconds(problem: GemmProblem, config: TileConfig) -> float:
    """Multiplying a block of K of a tile, or bringing it there, whichever takes longer."""
    lines_a, lines_b = (min(x, round_up(n, 8)) for x, n in ((config.bm, problem.m), (config.bn, problem.n)))
    copies = lines_a * _COPY_A + lines_b * _COPY_B
    products = config.bm * config.bn * _MULTIPLY
    return max(copies, products) * _TILES[config.bm, config.bn]


def estimated_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo, nbytes: int) -> float:
    """The model that orders tiles: waves of work-groups, and the bytes of operands and result."""
    division = Division.of(problem, config, device, problem.batch)
    blocks = ceil(problem.k * nbytes / 128)
    block = block_seconds(problem, config)
    quartets = 1 if config.option("alternate") else min(2, config.bm // 64)  # more do not store faster
    store = _STORE + _STORE_ELEMENT * config.bm * config.bn / quartets
    main = blocks * block
    waves = ceil(division.whole / device.compute_units)
    if config.option("alternate"):  # while one quartet stores, the other multiplies
        seconds = (waves - 1) * max(main, (main + store) / 2) + main + store if waves else 0.0
    else:
        seconds = waves * (main + store)
    if division.cut:
        seconds += ceil(blocks / division.shares) * block + store
    moved = (problem.m + problem.n) * problem.k * nbytes * _READ + problem.m * problem.n * nbytes * _WRITE
    seconds = float((seconds**4 + (moved * problem.batch) ** 4) ** 0.25)  # the longer, and some of the other
    if division.cut:
        seconds += _LAUNCH + 8 * division.cut * division.shares * config.bm * config.bn * _PARTIAL
    return seconds + _START + _LAUNCH


def tile_configs(
    problem: GemmProblem, device: DeviceInfo, nbytes: int, tiles: Sequence[tuple[int, int]]
) -> list[TileConfig]:
    """A configuration for each tile that fits, the one that the model likes best first."""
    room = local_bytes(device) - _OTHER_LOCAL_BYTES
    found = []
    for bm, bn in tiles:
        config = TileConfig(bm=bm, bn=bn, bk=128 // nbytes, options=(("alternate", 0), ("group", 8)))
        config = replace(config, stages=min(8, room // stage_bytes(config)))
        if config.stages >= 2:
            found.append(config)
            found += _variants(problem, config, device)
    return sorted(found, key=lambda c: estimated_seconds(problem, c, device, nbytes))


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
    left = Division.of(problem, config, device, problem.batch).tiles % device.compute_units
    if not left or (problem.batch > 1 and stacked(problem) == 1):
        return 1
    return min(device.compute_units // left, problem.k // (2 * config.bk), _MOST_SHARES)


def tile_violations(config: TileConfig, device: DeviceInfo, nbytes: int) -> list[str]:
    """Why cl/wgmma.cl cannot be built with *config*."""
    reasons = config.violations(device, (work_items(config),), 0)
    if (config.bm, config.bn) not in _TILES or config.bk != 128 // nbytes:
        reasons.append(f"wgmma has tiles of {list(_TILES)} x {128 // nbytes}, not {config}")
    if not 1 <= config.split_k <= _MOST_SHARES:
        reasons.append(f"split_k must be 1 to {_MOST_SHARES}: {config}")
    if config.option("alternate") and (config.bm, config.bn) not in _ALTERNATE_TILES:
        reasons.append(f"quartets alternate on tiles of {_ALTERNATE_TILES}, not {config}")
    needed = config.stages * stage_bytes(config) + _OTHER_LOCAL_BYTES
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
) -> Launch:
    """The launch of cl/wgmma.cl over operands that are packed where they have to be."""
    unit = operands.unit
    defines: Defines = (
        *_unit_defines(config),
        *(("STAGES", config.stages), ("ELEMENT_BYTES", unit.nbytes), ("MAP_TYPE", unit.map_type)),
        *(("WGMMA_TYPE", unit.code), *unit.defines),
        *(("WGMMA_ACROSS_A", int(operands.across_a)), ("WGMMA_ACROSS_B", int(operands.across_b))),
        *(("PACKED_A", int(operands.pack_a)), ("PACKED_B", int(operands.pack_b))),
        ("EXPONENTS", 0),
        *out_defines(problem),
    )
    stack = stacked(problem)
    division = Division.of(problem, config, device, stack)
    over = division.groups(device) * work_items(config)
    return Launch(
        Program(SOURCES, (*gemm_defines(problem), *defines), ptx_target="sm_90a"),
        "matmul_wgmma",
        (over,) if stack > 1 else ndrange(problem, over),
        (work_items(config),) if stack > 1 else local_range(problem, work_items(config)),
        (
            *gemm_args(problem),
            "workspace:maps",
            "workspace:partial" if config.split_k > 1 else "workspace:maps",  # never written then
            *division.args,
            *operands.args(problem),
        ),
    )


def _unit_defines(config: TileConfig) -> Defines:
    """The macros of cl/units.h that the configuration decides."""
    return (
        *(("BM", config.bm), ("BN", config.bn), ("WGMMA_N", config.bn), ("GROUP", config.option("group", 8))),
        *(("SPLIT_K", int(config.split_k > 1)), ("ALTERNATE", config.option("alternate"))),
    )


def _teams(shares: int) -> int:
    """Into how many parts cl/shares.cl divides the shares that it adds: 1, 2, 4 or 8."""
    return 1 << (ceil(shares / _SHARES_EACH) - 1).bit_length()


def _adding(
    problem: GemmProblem, config: TileConfig, device: DeviceInfo, unit: Unit
) -> tuple[tuple[Launch, ...], tuple[Workspace, ...]]:
    """The launch of cl/shares.cl, and what it reads."""
    stack = stacked(problem)
    division = Division.of(problem, config, device, stack)
    if config.split_k == 1:
        return (), ()
    sets = problem.batch // stack
    elements = config.bm * config.bn * division.cut
    partial = Workspace("partial", max(1, 4 * elements * division.shares * sets))
    teams = _teams(division.shares)
    defines = (
        *(*_unit_defines(config), ("ELEMENT_BYTES", unit.nbytes)),
        *(("CHUNK", 4), ("TEAMS", teams), ("EACH", _SHARES_EACH)),
    )
    items = elements // 4 * teams
    launch = Launch(
        gemm_program(problem, ("chunk.h", "tile_order.h", "units.h", "shares.h", "shares.cl"), defines),
        "matmul_shares",
        ndrange(problem, items) if sets > 1 else (items,),
        local_range(problem, 128 * teams) if sets > 1 else (128 * teams,),
        (*gemm_args(problem), partial.symbol, *division.args),
    )
    return (launch,) if division.cut else (), (partial,)


def maps_workspace(problem: GemmProblem, config: TileConfig, device: DeviceInfo, stack: int = 1) -> Workspace:
    """The tensor maps of all work-groups, one set of which goes through `stack` products."""
    sets = problem.batch // stack
    each = Division.of(problem, config, device, stack).groups(device) * MAP_BYTES
    return Workspace("maps", sets * each, zeroed=True)


class Wgmma(Kernel):
    """See cl/wgmma.cl. BM x BN is a tile, BK 128 bytes of K; SPLIT_K: into how many shares K is cut where
    tiles are too few for a wave, added by cl/shares.cl; options ``group``: rows of tiles that are computed
    together, ``alternate``: quartets of sub-groups have tiles of their own.
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
        adding, partial = _adding(problem, config, device, unit)
        return Work(
            (*pack_launches(problem, device, operands), product, *adding),
            (maps, *partial, *operands.workspace(problem)),
        )

    def _unit(self, problem: GemmProblem) -> Unit | str:
        return unit_for(problem, "WGMMA")
