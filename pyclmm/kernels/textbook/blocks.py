"""`strip`, `block`, `vector` and `double_buffer`: a BM x BN tile, TM x TN elements a work-item."""

from __future__ import annotations

from ...problem.dtypes import COMPLEX
from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import tiles_of
from .textbook import Textbook

_LANES = (2, 4, 8, 16)  # OpenCL's vectors with vloadn; those of 3 would not divide a tile


class BlockKernel(Textbook):
    """A work-group of BN / TN x BM / TM work-items computes a BM x BN tile, in steps of BK."""

    pairs_of_tiles = 1  # in local memory
    tiles = (TileConfig(bm=64, bn=64, bk=16, tm=4, tn=4), TileConfig(bm=4, bn=4, bk=4, tm=2, tn=2))
    macros = (("BM", "bm"), ("BN", "bn"), ("BK", "bk"), ("TM", "tm"), ("TN", "tn"))
    fraction, wait = 0.086, 0.12  # those of `tiled`: nothing was measured on a GPU

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        groups, elements = tiles_of(problem, config.bm, config.bn) * problem.batch, config.bm * config.bn
        row = self.work_group(config)[0]
        return self.loop_seconds(problem, device, groups, elements, row, 1 / max(1, config.bk))

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return config.bm, config.bn

    def work_group(self, config: TileConfig) -> tuple[int, int]:
        return config.bn // config.tn, config.bm // config.tm

    def local_bytes(self, problem: GemmProblem, config: TileConfig) -> int:
        return self.pairs_of_tiles * config.bk * (config.bm + config.bn) * problem.sums.nbytes

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config.bm % config.tm or config.bn % config.tn:
            return [f"tm must divide bm, and tn must divide bn: {config}"]
        return super().violations(problem, config, device)


class Strip(BlockKernel):
    """See cl/textbook/strip.cl."""

    name = "strip"
    summary = "tiles in local memory, TM elements of one column for each work-item"
    tiles = (TileConfig(bm=64, bn=16, bk=16, tm=8), TileConfig(bm=4, bn=4, bk=4, tm=4))

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config.tn != 1:
            return [f"strip has one column a work-item, so tn must be 1: {config}"]
        return super().violations(problem, config, device)


class Block(BlockKernel):
    """See cl/textbook/block.cl."""

    name = "block"
    summary = "tiles in local memory, TM x TN elements in registers for each work-item"


class Vector(BlockKernel):
    """See cl/textbook/vector.cl. TN is the width of its vectors."""

    name = "vector"
    summary = "block with OpenCL vectors: loads, stores and multiply-adds of TN elements"
    accepts = Accepts(fields=EPILOGUE)  # a compiler may fuse multiply-adds of vectors, or not

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.acc_type in COMPLEX:
            return "OpenCL has no vectors of complex numbers"
        return super().obstacle(problem, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config.tn not in _LANES:
            return [f"tn is the width of OpenCL's vectors, {', '.join(map(str, _LANES))}: {config}"]
        return super().violations(problem, config, device)


class DoubleBuffer(BlockKernel):
    """See cl/textbook/double_buffer.cl."""

    name = "double_buffer"
    summary = "block with two pairs of tiles: one is loaded while the other is multiplied"
    pairs_of_tiles = 2
