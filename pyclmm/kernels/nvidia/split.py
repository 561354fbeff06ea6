"""`split` and `mma_split`: float32's accuracy and complex numbers on matrix units.

Operands are split into parts, and complex ones multiplied as real ones (cl/nvidia/split.cl).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from ...problem.dtypes import ElementType
from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, Accepts, Types
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import (
    Arg,
    Defines,
    Launch,
    MatrixKernel,
    Work,
    Workspace,
    gemm_args,
    gemm_launch,
    gemm_program,
    round_up,
    tiles_of,
    too_long,
)
from . import mma_ring
from .matrix_units import FLOAT16, LINE_ALIGN, MAP_BYTES, TF32, local_bytes, out_defines
from .unit_cost import ring_seconds, splitting_seconds

_BLOCK_BYTES = 128  # of a packed line: 64 of hi, 64 of lo
_ITEMS_OF_LINE = 64  # work-items of cl/nvidia/split.cl for each of LINES
_WORK_ITEMS = 384  # of cl/nvidia/wgmma_split.cl
_BLOCKS = 2  # of K in a stage
# Tiles of `split`, and the fraction of the full rate that each reached on an H200.
_TILES = {(128, 128): 0.99, (64, 128): 0.91, (128, 64): 0.74}
# Multiply-adds a second as fractions of the units' rates: float32's, each as three of float16; TF32's.
_THREE_PARTS = 0.33
_ONE_PART = 0.8
_BLOCK = 2.3e-07  # seconds: the least time of a stage
_TILE_SECONDS = 3.3e-06  # a tile's start and end, besides its multiplications
_START_SECONDS = 2.4e-07
_OTHER_LOCAL_BYTES = 256 + 128 + 1536 + 1024  # tensor maps, barriers, exponents, alignment
_SAME_ROWS = 64  # BM at which both quartets compute the same rows, and one passes its sums to the other
# BM, BN, SGM, SGN of `mma_split`, and the factor by which the tile is slower on an H200 than unit_cost.py
# says
_MMA_TILES = {(128, 128, 64, 32): 1.6, (64, 64, 32, 32): 1.7}


def as_real(problem: GemmProblem) -> GemmProblem:
    """The real product that is computed: M x 2N x 2K for complex operands (cl/nvidia/split.cl)."""
    return replace(problem, n=2 * problem.n, k=2 * problem.k) if problem.sums.planes == 2 else problem


def pitch(problem: GemmProblem, unit: ElementType, parts: int) -> int:
    """Elements of a packed line: whole blocks of both parts, or whole accesses of one part."""
    if parts == 1:
        return round_up(as_real(problem).k, 64 // unit.nbytes)
    return round_up(as_real(problem).k * parts, _BLOCK_BYTES // unit.nbytes)


def _in_parts(
    problem: GemmProblem, product: Callable[[int, tuple[Arg, ...]], Launch], more: tuple[Workspace, ...]
) -> Work:
    """Three launches (cl/nvidia/split.h). The first splits into float16 parts. The second multiplies these,
    or, if they are not accurate enough, splits into TF32 parts. The third multiplies the TF32 parts.

    *product*: makes the launch for a value of SPLIT from its further arguments.
    """
    real = as_real(problem)
    exponents = Workspace("exponents", 4 * (real.m + real.n) * problem.batch)
    quality = Workspace("quality", 8 * _line_groups(real) * problem.batch)
    done = Workspace("done", 4 * problem.batch)
    known = (exponents.symbol, quality.symbol)
    work = (
        _splitting(problem, 1, known),
        product(1, (*known, done.symbol)),
        product(2, (exponents.symbol, done.symbol)),
    )
    # TF32 parts overwrite the float16 parts, which are smaller
    return Work(work, (*more, *_packed(real, 2), exponents, quality, done))


def _unit_of(split: int) -> ElementType:
    """The element type that is multiplied for a value of SPLIT."""
    return FLOAT16 if split == 1 else TF32


def _packed(real: GemmProblem, parts: int) -> tuple[Workspace, ...]:
    line = round_up(4 * real.k * parts, _BLOCK_BYTES) * real.batch
    return (Workspace("packed_a", real.m * line), Workspace("packed_b", real.n * line))


def _packed_args(problem: GemmProblem, split: int) -> tuple[Arg, ...]:
    """The kernels' arguments packed_a, packed_b and pitch."""
    line = pitch(problem, _unit_of(split), 2 if split else 1)
    return ("workspace:packed_a", "workspace:packed_b", np.int64(line))


def _split_defines(problem: GemmProblem, split: int) -> tuple[tuple[str, int], ...]:
    """The macros of cl/nvidia/split.h."""
    wide_a, wide_b = (int(align >= LINE_ALIGN) for align in (problem.a_align, problem.b_align))
    return (("SPLIT", split), ("LINES", lines_of(problem)), ("WIDE_A", wide_a), ("WIDE_B", wide_b))


def lines_of(problem: GemmProblem) -> int:
    """Rows of A or columns of B that a work-group splits.

    A small work-group waits less at its barriers: 4 lines of 768 elements take 0.64 times as long as 8 do, of
    4096 0.85 times (H200). Lines across K are read 8 at a time, which are 32 bytes: by 4 they take 1.05 times
    as long.
    """
    return 8 if problem.trans_a and not problem.trans_b else 4


def _line_groups(real: GemmProblem) -> int:
    """Work-groups that split one product's operands."""
    return ceil(real.m / lines_of(real)) + ceil(real.n / lines_of(real))


def _splitting(problem: GemmProblem, split: int, extra: tuple[Arg, ...]) -> Launch:
    """The launch of cl/nvidia/split.cl."""
    program = gemm_program(problem, "nvidia/split.cl", _split_defines(problem, split))
    items = lines_of(problem) * _ITEMS_OF_LINE
    size = (_line_groups(as_real(problem)) * items,)
    args = (*_packed_args(problem, split), *extra)
    return gemm_launch(problem, program, "matmul_split", size, (items,), args)


class _PartsKernel(MatrixKernel):
    """A family that multiplies operands split into parts, with as many stages as fit in local memory."""

    options = ("group",)
    tiles: Collection[tuple[int, ...]]  # BM and BN, and further sizes
    sizes: tuple[str, ...] = ("bm", "bn")  # what the numbers of a tile are

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return too_long(as_real(problem), 2**29)

    def in_parts(self, problem: GemmProblem) -> bool:
        return problem.precision == "high" or problem.sums.planes == 1

    @abstractmethod
    def work_items(self, config: TileConfig) -> int:
        """A work-group's size."""

    @abstractmethod
    def most_stages(self, bm: int, bn: int, device: DeviceInfo) -> int:
        """Stages that fit in local memory, 4 at the most."""

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        one = TileConfig(bk=_BLOCK_BYTES // 4, options=(("group", 8),))
        found = []
        for tile in self.tiles:
            sizes: dict[str, Any] = dict(zip(self.sizes, tile, strict=True))
            found.append(replace(one, stages=self.most_stages(tile[0], tile[1], device), **sizes))
        return found

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        tile = tuple(getattr(config, name) for name in self.sizes)
        if tile not in self.tiles or config.split_k != 1:
            return [f"{self.name} has tiles of {list(self.tiles)} and no split-K, not {config}"]
        if not 2 <= config.stages <= self.most_stages(config.bm, config.bn, device):
            return [f"{config.stages} stages: use 2 or more, as many as fit in local memory"]
        return config.violations(device, (self.work_items(config),), 0)


class Split(_PartsKernel):
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

    def work_items(self, config: TileConfig) -> int:
        return _WORK_ITEMS

    def most_stages(self, bm: int, bn: int, device: DeviceInfo) -> int:
        handed = 128 * bn * 2 if bm == _SAME_ROWS else 0
        room = local_bytes(device) - _OTHER_LOCAL_BYTES - handed
        return min(4, room // (_BLOCKS * (bm + bn) * _BLOCK_BYTES))

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """Seconds of the three launches: the waves of work-groups at the rate of the tile, and splitting."""
        real, rates = as_real(problem), device.rates
        waves = ceil(tiles_of(real, config.bm, config.bn) * problem.batch / device.units)
        in_parts = self.in_parts(problem)
        rate = rates.matrix(FLOAT16.unit) * _THREE_PARTS if in_parts else rates.matrix(TF32.unit) * _ONE_PART
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
                *config.macros("bm", "bn", "stages"), ("ELEMENT", _unit_of(split).name),
                ("ACROSS_A", 0), ("ACROSS_B", 0), ("SPLIT_K", 0), ("GROUP", config.option("group", 8)),
                ("CLUSTER", 1), *_split_defines(problem, split), *out_defines(problem),
            )  # fmt: skip
            program = gemm_program(problem, "nvidia/wgmma_split.cl", defines, ptx_target="sm_90a")
            args = (maps.symbol, *_packed_args(problem, split), *extra)
            size, local = (groups * _WORK_ITEMS,), (_WORK_ITEMS,)
            return gemm_launch(problem, program, "matmul_wgmma_split", size, local, args)

        if self.in_parts(problem):
            return _in_parts(problem, product, (maps,))
        packing = _splitting(problem, 0, ())  # copies the operands into packed lines without splitting them
        return Work((packing, product(0, ())), (maps, *_packed(as_real(problem), 1)))


class MmaSplit(_PartsKernel):
    """See cl/nvidia/mma_split.cl. BM x BN is a work-group's tile, SGM x SGN a sub-group's."""

    name = "mma_split"
    summary = 'float32 and complex64 with precision="high", split into parts, on the matrix units of sm_80'
    accepts = Accepts(
        (Types(("float32",), "float32", ("high", "medium")), Types(("complex64",), "complex64", ("high",))),
        GENERAL,
    )
    unit = "mma_double"  # of its devices: on others float32 arithmetic is as fast as three passes
    tiles = _MMA_TILES
    sizes = ("bm", "bn", "sgm", "sgn")

    def work_items(self, config: TileConfig) -> int:
        return mma_ring.work_items(config)

    def most_stages(self, bm: int, bn: int, device: DeviceInfo) -> int:
        return min(4, (local_bytes(device) - 1024) // ((bm + bn) * _BLOCK_BYTES))

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        real = as_real(problem)
        slower = _MMA_TILES.get((config.bm, config.bn, config.sgm, config.sgn), 1.0)
        ring = ring_seconds(real, config, device, FLOAT16, parts=3, slower=slower)
        return ring + splitting_seconds(real, device)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        def launch(split: int, extra: tuple[Arg, ...]) -> Launch:
            args = (*gemm_args(problem), *_packed_args(problem, split), *extra)
            groups = tiles_of(as_real(problem), config.bm, config.bn)
            defines: Defines = (("ELEMENT", _unit_of(split).name), *_split_defines(problem, split))
            return mma_ring.product(problem, config, self.name, groups, (LINE_ALIGN,) * 2, defines, args)

        return _in_parts(problem, launch, ())
