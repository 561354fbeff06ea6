"""`split` and `mma_split`: operands split into parts, complex operands as real ones (cl/nvidia/split.cl)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from ...problem.dtypes import ElementType
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import (
    Arg,
    Launch,
    MatrixKernel,
    Work,
    Workspace,
    gemm_launch,
    gemm_program,
    round_up,
    too_long,
)
from .matrix_units import FLOAT16, LINE_ALIGN, TF32

LINES = 8  # rows of A or columns of B that a work-group splits: LINES of cl/nvidia/split.h
BLOCK_BYTES = 128  # of a packed line: 64 of hi, 64 of lo
_ITEMS = 512  # WORK_ITEMS of cl/nvidia/split.cl


def is_complex(problem: GemmProblem) -> bool:
    """Whether *problem* is a product of complex numbers."""
    return problem.acc_type == "complex64"


def as_real(problem: GemmProblem) -> GemmProblem:
    """The real product that is computed: M x 2N x 2K for complex operands (cl/nvidia/split.cl)."""
    return replace(problem, n=2 * problem.n, k=2 * problem.k) if is_complex(problem) else problem


def pitch(problem: GemmProblem, unit: ElementType, parts: int) -> int:
    """Elements of a packed line: whole blocks of both parts, or whole accesses of one part."""
    if parts == 1:
        return round_up(as_real(problem).k, 64 // unit.nbytes)
    return round_up(as_real(problem).k * parts, BLOCK_BYTES // unit.nbytes)


def one_pass(problem: GemmProblem, product: Launch, more: tuple[Workspace, ...]) -> Work:
    """Copy the operands into packed lines without splitting them, then multiply."""
    return Work((_splitting(problem, 0, ()), product), (*more, *_packed(as_real(problem), TF32, 1)))


def in_parts(
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
    return Work(work, (*more, *_packed(real, TF32, 2), exponents, quality, done))


def unit_of(split: int) -> ElementType:
    """The element type that is multiplied for a value of SPLIT."""
    return FLOAT16 if split == 1 else TF32


def _packed(real: GemmProblem, unit: ElementType, parts: int) -> tuple[Workspace, ...]:
    line = round_up(real.k * parts, BLOCK_BYTES // unit.nbytes) * unit.nbytes * real.batch
    return (Workspace("packed_a", real.m * line), Workspace("packed_b", real.n * line))


def packed_args(problem: GemmProblem, split: int) -> tuple[Arg, ...]:
    """The kernels' arguments packed_a, packed_b and pitch."""
    line = pitch(problem, unit_of(split), 2 if split else 1)
    return ("workspace:packed_a", "workspace:packed_b", np.int64(line))


def split_defines(problem: GemmProblem, split: int) -> tuple[tuple[str, int], ...]:
    """The macros of cl/nvidia/split.h and cl/nvidia/split_read.h."""
    wide = (("WIDE_A", problem.a_align), ("WIDE_B", problem.b_align))
    return (("SPLIT", split), *((name, int(align >= LINE_ALIGN)) for name, align in wide))


def _line_groups(real: GemmProblem) -> int:
    """Work-groups that split one product's operands."""
    return ceil(real.m / LINES) + ceil(real.n / LINES)


def _splitting(problem: GemmProblem, split: int, extra: tuple[Arg, ...]) -> Launch:
    """The launch of cl/nvidia/split.cl."""
    program = gemm_program(problem, "nvidia/split.cl", split_defines(problem, split))
    size = (_line_groups(as_real(problem)) * _ITEMS,)
    args = (*packed_args(problem, split), *extra)
    return gemm_launch(problem, program, "matmul_split", size, (_ITEMS,), args)


class PartsKernel(MatrixKernel):
    """A family that multiplies operands split into parts, with as many stages as fit in local memory."""

    options = ("group",)
    tiles: Collection[tuple[int, ...]]  # BM and BN, and further sizes
    sizes: tuple[str, ...] = ("bm", "bn")  # what the numbers of a tile are

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return too_long(as_real(problem), 2**29)

    @abstractmethod
    def work_items(self, config: TileConfig) -> int:
        """A work-group's size."""

    @abstractmethod
    def most_stages(self, bm: int, bn: int, device: DeviceInfo) -> int:
        """Stages that fit in local memory, 4 at the most."""

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        one = TileConfig(bk=BLOCK_BYTES // 4, options=(("group", 8),))
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
