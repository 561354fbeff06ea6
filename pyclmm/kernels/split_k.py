"""split-K on GPUs: partial sums of a tile in workspace, and the launch that adds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from ..problem.gemm import GemmProblem
from .config import TileConfig
from .device import DeviceInfo
from .interface import GROUP, UNUSED, Defines, Launch, Work, Workspace, gemm_launch, gemm_program, tiles_of

_TEAM_ITEMS = 64  # most work-items in a team
_LOADS = 8  # that a work-item of a team has in flight


def with_ranges(
    found: Iterable[TileConfig], problem: GemmProblem, groups: Callable[[TileConfig], int], most: int
) -> list[TileConfig]:
    """*found*, and behind each that has fewer tiles than *groups* the same with K in ranges of four blocks or
    more, *most* at the most.
    """
    every = []
    for one in found:
        tiles = tiles_of(problem, one.bm, one.bn) * problem.batch
        ranges = min(groups(one) // tiles, problem.k // (4 * one.bk), most)
        every += [one, replace(one, split_k=ranges)] if ranges > 1 else [one]
    return every


@dataclass(frozen=True)
class TileRange:
    """Tiles ``first`` up to ``first + tiles``, computed by one launch with K in ``split_k`` ranges."""

    first: int
    tiles: int
    split_k: int = 1


@dataclass(frozen=True)
class PartialSums:
    """Partial sums of BM x BN tiles, up to the product's last tile (cl/split_k.cl). ``stack`` products number
    their tiles consecutively as one set. 1: each product has its own numbers.
    """

    problem: GemmProblem
    bm: int
    bn: int
    tile_range: TileRange
    stack: int = 1

    @property
    def workspace(self) -> Workspace:
        sets = self.problem.batch // self.stack
        sums = self.bm * self.bn * self.tile_range.tiles * self.tile_range.split_k * sets
        return Workspace("partial", max(1, sums * self.problem.sums.nbytes))

    @property
    def partial(self) -> str:
        """The kernel's argument of that name."""
        return self.workspace.symbol if self.tile_range.split_k > 1 else UNUSED

    def behind(self, product: Launch, device: DeviceInfo) -> Work:
        """*product*, and if it leaves partial sums the launch that adds them."""
        if self.tile_range.split_k == 1:
            return Work((product,))
        return Work((product, self.added(device)), (self.workspace,))

    def added(self, device: DeviceInfo) -> Launch:
        """The launch that adds partial sums stored row by row, with a work-item for each element."""
        items = math.gcd(self.bm * self.bn, device.group_items(_TEAM_ITEMS))
        return self._launch(items, 1, 1, 1, (("GROUP", GROUP), ("FRAGMENTS", 0)))

    def in_teams(self, items: int, chunk: int, defines: Defines) -> Launch:
        """The same by as many teams as keep all ranges of few tiles in flight: 1, 2, 4 or 8."""
        teams = 1 << (math.ceil(self.tile_range.split_k / _LOADS) - 1).bit_length()
        return self._launch(items, teams, chunk, _LOADS, defines)

    def _launch(self, items: int, teams: int, chunk: int, each: int, defines: Defines) -> Launch:
        """*teams* teams of *items* work-items add *chunk* elements each, with *each* loads in flight."""
        tile = (("BM", self.bm), ("BN", self.bn), ("TEAM_ITEMS", items), ("TEAMS", teams))
        loads = (("CHUNK", chunk), ("EACH", each))
        count = self.bm * self.bn // chunk * self.tile_range.tiles * teams
        more = (np.int32(self.tile_range.first), np.int32(self.tile_range.split_k), np.int32(self.stack))
        program = gemm_program(self.problem, "split_k.cl", (*tile, *loads, *defines))
        extra, size, local = (self.workspace.symbol, *more), (count,), (items * teams,)
        one_set = self.stack > 1
        return gemm_launch(self.problem, program, "add_partial_sums", size, local, extra, together=one_set)
