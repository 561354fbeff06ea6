"""`block`: several elements a work-item, in two dimensions."""

from __future__ import annotations

from ..config import TileConfig
from .blocks import Blocks


class Block(Blocks):
    """See cl/textbook/block.cl."""

    name = "block"
    summary = "tiles in local memory, TM x TN elements in registers for each work-item"
    tiles = (
        TileConfig(bm=64, bn=64, bk=16, tm=4, tn=4),
        TileConfig(bm=4, bn=4, bk=4, tm=2, tn=2),
    )
