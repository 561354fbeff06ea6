"""`tiled`: the textbook kernel with TW x TW tiles of A and B in local memory."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Work, round_up, tiles_of
from .textbook import Textbook, loop_seconds

_WIDTHS = (16, 32, 8, 4, 2, 1)
# Fraction of the rate of multiply-adds; reads of global memory that an element of K waits for, besides one
# for each step of TW. H200, 2026-11-22
_FRACTION, _WAIT = 0.086, 0.12
_OTHER_WIDTH = 0.1  # other widths count as slower by this


class Tiled(Textbook):
    """See cl/textbook/tiled.cl. BM = BN = BK is TW, the tile width."""

    name = "tiled"
    summary = "TW x TW tiles of A and B in local memory, one element for each work-item"
    automatic = True
    tiles = tuple(map(TileConfig.square, _WIDTHS))

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """Of every width as of the first one, so that one program serves all shapes."""
        tw = _WIDTHS[0]
        groups, wait = tiles_of(problem, tw, tw) * problem.batch, 1 / tw + _WAIT
        seconds = loop_seconds(problem, device, groups, tw * tw, _FRACTION, wait)
        return seconds * (1 + _OTHER_WIDTH * (config.bm != tw))

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return config.bm, config.bn

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        tw = config.bm
        if not tw == config.bn == config.bk:
            return [f"tiled has one tile width, so bm, bn and bk must be equal: {config}"]
        local_bytes = 2 * tw * (tw + 1) * problem.sums.nbytes
        return config.violations(device, (tw, tw), local_bytes)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        tw = config.bm
        size = (round_up(problem.n, tw), round_up(problem.m, tw))
        return self.one_launch(problem, size, (tw, tw), [("TW", tw)])
