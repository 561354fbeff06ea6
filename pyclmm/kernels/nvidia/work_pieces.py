"""How the tiles of `wgmma` are distributed to work-groups (cl/nvidia/work_pieces.h)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Arg, tiles_of
from ..split_k import TileRange


def members(config: TileConfig) -> int:
    """How many work-groups share a tile of B."""
    return config.option("cluster", 1)


def quartets(config: TileConfig) -> int:
    """How many of a work-group's quartets multiply."""
    return 2 if config.option("alternate") else config.bm // 64


@dataclass(frozen=True)
class WorkPieces:
    """The tiles of a stack. ``whole`` tiles are computed in one piece; each of the others in ``split_k``
    ranges of K. A tile of a ``cluster`` of work-groups is one for each of them.
    """

    tiles: int
    whole: int
    split_k: int
    stack: int
    cluster: int = 1

    @property
    def cut(self) -> int:
        return self.tiles - self.whole

    @property
    def args(self) -> tuple[Arg, ...]:
        """The kernel's arguments whole, split_k and stack."""
        return (np.int32(self.whole), np.int32(self.split_k), np.int32(self.stack))

    @property
    def tile_range(self) -> TileRange:
        """The tiles that are computed with split-K."""
        return TileRange(self.whole, self.cut, self.split_k)

    def groups(self, device: DeviceInfo) -> int:
        """The number of work-groups. Each computes pieces of work until none are left."""
        return self.cluster * min(
            self.whole + self.cut * self.split_k, max(1, device.compute_units // self.cluster)
        )

    @classmethod
    def of(cls, problem: GemmProblem, config: TileConfig, device: DeviceInfo, stack: int) -> WorkPieces:
        """With SPLIT_K over 1, the tiles of full waves are whole, and those of the last wave are cut."""
        cluster = members(config)
        tiles = tiles_of(problem, cluster * config.bm, config.bn) * stack
        whole = tiles // device.compute_units * device.compute_units if config.split_k > 1 else tiles
        return cls(tiles, whole, config.split_k, stack, cluster)
