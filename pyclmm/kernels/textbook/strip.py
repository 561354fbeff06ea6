"""`strip`: several elements a work-item, in one dimension."""

from __future__ import annotations

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from .blocks import Blocks


class Strip(Blocks):
    """See cl/textbook/strip.cl."""

    name = "strip"
    summary = "tiles in local memory, TM elements of one column for each work-item"
    tiles = (
        TileConfig(bm=64, bn=16, bk=16, tm=8),
        TileConfig(bm=4, bn=4, bk=4, tm=4),
    )

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config.tn != 1:
            return [f"strip has one column a work-item, so tn must be 1: {config}"]
        return super().violations(problem, config, device)
