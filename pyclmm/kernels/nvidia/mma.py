"""`mma` and `mma_double`: the matrix units of NVIDIA's sm_80 and later, by instructions that the driver's
compiler accepts. `mma_double` is for float64, which data-centre devices multiply so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from ...problem.dtypes import ELEMENTS, ElementType
from ...problem.gemm import GemmProblem
from .. import listed
from ..accepts import LISTS
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import UNUSED, Defines, Launch, MatrixKernel, Work, round_up, tiles_of
from ..split_k import PartialSums, TileRange, with_ranges
from .matrix_units import DOUBLE, LINE_ALIGN, ONE_PASS, Operands, block_of, in_staged_lines, pack_launches
from .mma_ring import product, too_many_stages, unfit, work_items
from .unit_cost import pack_seconds, ring_seconds

_GROUPS = 2  # work-groups for each compute unit that split-K aims at
_MOST_RANGES = 16
_TEAM_ITEMS = 64  # work-items that add partial sums of a tile
# BM, BN, SGM, SGN, STAGES, and the factor by which the tile is slower on an H200 than unit_cost.py says
_TILES: Mapping[tuple[int, ...], float] = {
    (128, 256, 64, 32, 3): 1.04,
    (128, 128, 64, 32, 3): 0.91,
    (128, 128, 64, 32, 2): 0.99,
    (64, 64, 32, 32, 4): 0.85,
    (64, 64, 32, 32, 2): 0.82,
    (128, 64, 32, 32, 3): 0.97,
    (64, 128, 32, 32, 3): 0.96,
    (64, 64, 32, 16, 4): 1.0,
    (64, 32, 32, 16, 4): 0.85,
    (32, 64, 16, 32, 4): 0.83,
    (32, 32, 16, 16, 4): 0.83,
    (32, 32, 16, 16, 2): 0.76,
    (64, 16, 16, 16, 4): 0.82,
    (16, 64, 16, 16, 4): 0.83,
}
# BM, BN, BK, SGM, SGN, STAGES, and the factor, of `mma_double`
_DOUBLE_TILES: Mapping[tuple[int, ...], float] = {
    (128, 128, 32, 32, 64, 3): 0.89,
    (128, 128, 16, 64, 32, 3): 0.99,
    (64, 64, 16, 32, 32, 4): 0.95,
    (64, 32, 16, 32, 16, 4): 0.82,
    (32, 64, 16, 16, 32, 4): 0.88,
    (32, 32, 16, 16, 16, 4): 0.73,
    (32, 32, 32, 16, 16, 4): 1.0,
}


def _operands(problem: GemmProblem, unit: ElementType) -> Operands:
    """Only operands of 8 bits are packed: those across K, and those not aligned to 4 bytes."""
    across = (problem.trans_a, not problem.trans_b)
    aligned = (problem.a_align >= 4, problem.b_align >= 4)
    packed = [unit.nbytes == 1 and (x or not y) for x, y in zip(across, aligned, strict=True)]
    return Operands(unit, *packed, *(x and not p for x, p in zip(across, packed, strict=True)))


def _chunks(problem: GemmProblem, unit: ElementType) -> tuple[int, int]:
    """CHUNK_A and CHUNK_B. TF32 across K is transposed by copies of single elements."""
    turned = (unit.nbytes == 4 and problem.trans_a, unit.nbytes == 4 and not problem.trans_b)
    aligned = (min(LINE_ALIGN, problem.a_align), min(LINE_ALIGN, problem.b_align))
    return (4 if turned[0] else aligned[0], 4 if turned[1] else aligned[1])


class Mma(MatrixKernel):
    """See cl/nvidia/mma.cl. BM x BN is a work-group's tile, SGM x SGN a sub-group's, BK is 128 bytes of K.
    SPLIT_K is the number of ranges of K. Operands are read as they are stored, but for some of 8 bits.
    Option ``group``: rows of tiles that are computed together.
    """

    name = unit = "mma"
    summary = "matrix units of sm_80 and later (mma.sync), tiles copied to local memory by cp.async"
    accepts = ONE_PASS.with_fields(LISTS)
    options: tuple[str, ...] = ("group",)
    sizes: tuple[str, ...] = ("bm", "bn", "sgm", "sgn", "stages")  # of a tile
    tiles = _TILES

    def further(self, problem: GemmProblem, device: DeviceInfo) -> dict[str, Any]:
        """The fields of its configurations besides ``sizes``."""
        return {"bk": block_of(ELEMENTS[problem.a_type]), "options": (("group", 8),)}

    def defines(self, config: TileConfig) -> Defines:
        """The macros that `mma_double` has besides."""
        return ()

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        problem, further = problem.typical, self.further(problem, device)
        named: Iterator[dict[str, Any]] = (dict(zip(self.sizes, tile, strict=True)) for tile in self.tiles)
        found = [TileConfig(**sizes, **further) for sizes in named]
        every = with_ranges(found, problem, lambda _: _GROUPS * device.compute_units, _MOST_RANGES)
        return [c for c in every if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        unit = ELEMENTS[problem.a_type]
        operands = _operands(problem, unit)
        read = operands.as_packed(problem)
        packed = pack_seconds(operands.packed_elements(problem), unit.nbytes, device)
        slower = self.tiles.get(tuple(getattr(config, name) for name in self.sizes), 1.0)
        chunks, staged = _chunks(read, unit), in_staged_lines(read)
        ring = ring_seconds(read, config, device, unit, chunks=chunks, slower=slower, staged=staged)
        return ring + packed

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        operands, ranges = _operands(problem, ELEMENTS[problem.a_type]), config.split_k
        if problem.is_listed:
            make = partial(self._product, problem, config, operands)
            return listed.in_a_list(problem, device, config.bm, config.bn, make)
        read, spaces = operands.as_packed(problem), operands.workspace(problem)
        tiles = TileRange(0, tiles_of(problem, config.bm, config.bn), ranges)
        sums = PartialSums(read, config.bm, config.bn, tiles)
        k_range = round_up(ceil(problem.k / ranges), config.bk)
        own = sums.partial, k_range, in_staged_lines(read)
        made = self._product(read, config, operands, tiles.tiles, *own)
        launches = (*pack_launches(problem, device, operands), made)
        if ranges == 1:
            return Work(launches, spaces)
        order = (("GROUP", config.option("group", 8)), ("FRAGMENTS", 0))
        return Work((*launches, sums.in_teams(_TEAM_ITEMS, 1, order)), (sums.workspace, *spaces))

    def _product(
        self,
        problem: GemmProblem,
        config: TileConfig,
        operands: Operands,
        tiles: int,
        partial: str = UNUSED,
        k_range: int = 0,
        staged: bool = False,
    ) -> Launch:
        """The launch of cl/nvidia/mma.cl for so many *tiles*. *staged*: results go through local memory."""
        args = (*operands.gemm_args(problem), partial, np.int32(k_range), np.int32(staged))
        split = ("SPLIT_K", int(config.split_k > 1))
        defines = (("ELEMENT", operands.unit.name), *self.defines(config), split)
        return product(problem, config, "mma", tiles, _chunks(problem, operands.unit), defines, args)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.is_listed and _operands(problem, ELEMENTS[problem.a_type]).any_packed:
            return "it would have to pack operands of a list"
        return super().obstacle(problem, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if reasons := [*unfit(config, 16), *listed.misfits(problem, config)]:
            return reasons
        if not all(x % 64 == 0 or x in (16, 32) for x in (config.bm, config.bn)):
            return [f"bm and bn must be 16, 32 or multiples of 64: {config}"]
        items = work_items(config)
        if items & (items - 1) or not 64 <= items <= min(512, 8 * config.bm, 8 * config.bn):
            return [f"a work-group of {items} work-items does not fill these tiles: {config}"]
        needed = config.stages * (config.bm + config.bn) * 128 + 1024
        return too_many_stages(config, needed, device) or config.violations(device, (items,), 0)


class MmaDouble(Mma):
    """The same for float64. BM x BN x BK is a work-group's tile. Option ``mma_k``: K of one instruction."""

    name = unit = "mma_double"
    summary = "float64 matrix units of sm_80 and sm_90 (mma.sync)"
    accepts = DOUBLE.with_fields(LISTS)
    options = ("group", "mma_k")
    sizes = ("bm", "bn", "bk", "sgm", "sgn", "stages")
    tiles = _DOUBLE_TILES

    def further(self, problem: GemmProblem, device: DeviceInfo) -> dict[str, Any]:
        mma_k = 4 if device.capability < (9, 0) else 8
        return {"options": (("group", 8), ("mma_k", mma_k))}

    def defines(self, config: TileConfig) -> Defines:
        return (*config.macros("bk"), ("MMA_K", config.option("mma_k", 4)))

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        mma_k = config.option("mma_k", 4)
        if reasons := [*unfit(config, 8), *listed.misfits(problem, config)]:
            return reasons
        allowed = (4,) if device.capability < (9, 0) else (4, 8)
        if mma_k not in allowed or config.bk % mma_k:
            return [f"mma_k is one of {allowed} and divides bk: {config}"]
        items = work_items(config)
        for lines in ((config.bk, config.bm), (config.bk, config.bn)):
            for length in lines:
                if length % 2 or items % length or (lines[0] * lines[1]) % (2 * items):
                    return [f"{items} work-items do not fill tiles of {lines}: {config}"]
        # The most that any layout needs
        padding = 4 * (max(config.bm, config.bk) + max(config.bn, config.bk))
        needed = 8 * config.stages * ((config.bm + config.bn) * config.bk + padding)
        return too_many_stages(config, needed, device) or config.violations(device, (items,), 0)
