"""What the kernels between `tiled` and `register` share: a BM x BN tile, TM x TN elements a work-item."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Work, round_up
from .loops import groups_of, loop_seconds
from .textbook import Textbook

_FRACTION, _WAIT = 0.086, 0.12  # those of `tiled`: nothing was measured on a GPU


class Blocks(Textbook):
    """A work-group of BN / TN x BM / TM work-items computes a BM x BN tile, in steps of BK."""

    pairs_of_tiles = 1  # in local memory

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        groups, wait = groups_of(problem, config.bm, config.bn), 1 / max(1, config.bk) + _WAIT
        elements = config.bm * config.bn
        return loop_seconds(problem, device, groups, elements, _FRACTION, wait)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return config.bm, config.bn

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config.bm % config.tm or config.bn % config.tn:
            return [f"tm must divide bm, and tn must divide bn: {config}"]
        itemsize = problem.sums.nbytes
        local_bytes = self.pairs_of_tiles * config.bk * (config.bm + config.bn) * itemsize
        return config.violations(device, (config.bn // config.tn, config.bm // config.tm), local_bytes)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        sizes = ("bm", "bn", "bk", "tm", "tn")
        defines = [(name.upper(), getattr(config, name)) for name in sizes]
        columns = round_up(problem.n, config.bn) // config.tn
        rows = round_up(problem.m, config.bm) // config.tm
        local = (config.bn // config.tn, config.bm // config.tm)
        return self.one_launch(problem, (columns, rows), local, defines)
