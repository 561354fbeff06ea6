"""What `mma_quantized`, `wgmma_quantized` and `wgmma_fragments` share: few rows by quantised weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from ...formats import BlockFormat
from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, Accepts, Types
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import (
    Defines,
    Loops,
    MatrixKernel,
    Work,
    Workspace,
    gemm_defines,
    gemm_launch,
    round_up,
    tiles_of,
)
from ..split_k import PartialSums, TileRange
from ..weights import format_of, no_weights, program_of
from .matrix_units import LINE_ALIGN, out_defines

DEPTH = 128  # of K, in a slice
_MOST_ROWS = 128  # of A: with more, weights that are turned into numbers once serve many
_GROUPS = 2  # work-groups for each compute unit that ranges of K aim at
_MOST_RANGES = 16


class QuantizedUnits(MatrixKernel):
    """The launch of such a family. Its program below cl/nvidia/ has its name. ``target``: that of its PTX."""

    accepts = Accepts((Types(("float16", "bfloat16"), "float32", weights=True),), EPILOGUE | {"b_format"})
    rows: tuple[int, ...]  # that BM may be
    order = "rows"  # in which weights lie
    target: str | None = None

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if why := no_weights(problem, self.order) or super().obstacle(problem, device):
            return why
        if problem.m > _MOST_ROWS:
            return f"A has {problem.m} rows: at most {_MOST_ROWS} are few"
        if problem.trans_a or problem.a_align < LINE_ALIGN:
            return f"A is not stored along K in rows that begin on multiples of {LINE_ALIGN} bytes"
        return None

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        bm = next((rows for rows in self.rows if rows >= problem.m), self.rows[-1])
        return [c for c in self.offered(problem, bm, device) if not self.violations(problem, c, device)]

    @abstractmethod
    def offered(self, problem: GemmProblem, bm: int, device: DeviceInfo) -> Iterator[TileConfig]:
        """Its configurations with tiles of *bm* rows."""

    @abstractmethod
    def items(self, config: TileConfig) -> int:
        """Work-items of a work-group."""

    @abstractmethod
    def sizes(self, problem: GemmProblem, config: TileConfig) -> tuple[tuple[str, int], ...]:
        """The macros of the kernel's own tile."""

    def maps(self, config: TileConfig, groups: int) -> tuple[Workspace | str, ...]:
        """Its argument behind k_range, if any: tensor maps for *groups* work-groups, or any pointer."""
        return ()

    def k_multiple(self, problem: GemmProblem) -> int:
        """What K is a multiple of in each range."""
        return DEPTH

    def k_range(self, problem: GemmProblem, ranges: int) -> int:
        """K of one of so many ranges."""
        return round_up(ceil(problem.k / ranges), self.k_multiple(problem))

    def ranges(self, problem: GemmProblem, bm: int, bn: int, bk: int, device: DeviceInfo) -> tuple[int, ...]:
        """Numbers of ranges of K, of four steps or more, with which tiles fill the device once or twice."""
        tiles = tiles_of(problem, bm, bn) * problem.batch
        most = max(1, min(problem.k // (4 * bk), _MOST_RANGES))
        full = (max(1, n * device.compute_units // tiles) for n in (0, 1, _GROUPS))
        return tuple(sorted({min(most, ranges) for ranges in full}))

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        steps = {1, config.stages, config.option("ahead", 1)}
        return Loops((config.bm,), (config.bn,), tuple(config.bk * n for n in sorted(steps)))

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        c, tiles = config, tiles_of(problem, config.bm, config.bn)
        k_range = self.k_range(problem, config.split_k)
        ranges = ceil(problem.k / k_range)
        sums = PartialSums(problem, c.bm, c.bn, TileRange(0, tiles, ranges))
        arrived = Workspace("arrived", 4 * tiles * problem.batch, zeroed=True)
        own: Defines = (("ELEMENT", problem.a_type), *self.sizes(problem, config), ("SPLIT", int(ranges > 1)))
        defines = (*gemm_defines(problem), *out_defines(problem), *own, *_weight_defines(problem))
        program = replace(program_of(problem, f"nvidia/{self.name}.cl", defines), ptx_target=self.target)
        spaces: tuple[Workspace, ...] = (sums.workspace, arrived) if ranges > 1 else ()
        # without ranges, any pointers: never used
        extra = tuple(space.symbol for space in spaces) or ("batch_offsets", "batch_offsets")
        maps = self.maps(c, tiles * ranges * problem.batch)
        extra = (*(x if isinstance(x, str) else x.symbol for x in maps), *extra)
        spaces += tuple(x for x in maps if not isinstance(x, str))
        size, local = (tiles * self.items(config), ranges), (self.items(config), 1)
        function = f"matmul_{self.name}"
        launch = gemm_launch(problem, program, function, size, local, (np.int32(k_range), *extra))
        return Work((launch,), spaces)


def weight_bits(problem: GemmProblem) -> int:
    """The bits of affine weights, which are loaded ahead; else 0."""
    form = format_of(problem)
    return form.bits if form.mode == "affine" else 0


def is_fused(problem: GemmProblem) -> bool:
    """Whether 16-bit arithmetic gives affine weights (cl/nvidia/weights.h)."""
    significand = ELEMENTS[problem.a_type].significand
    return format_of(problem).dtype == problem.a_type and 0 < weight_bits(problem) <= significand


def _weight_defines(problem: GemmProblem) -> Defines:
    """The macros of cl/nvidia/weights.h, or of other weights than affine ones."""
    form, bits = format_of(problem), weight_bits(problem)
    if not bits:
        in_blocks = isinstance(form, BlockFormat)
        return (("BITS", 0), ("BYTES_OF_256", form.row_nbytes(256) if in_blocks else 32 * form.bits))
    return (("BITS", bits), ("SCALE_ELEMENT", form.dtype), ("FUSED", int(is_fused(problem))))
