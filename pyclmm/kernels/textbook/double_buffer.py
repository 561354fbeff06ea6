"""`double_buffer`: `block` that loads its next tiles while it multiplies."""

from __future__ import annotations

from ..config import TileConfig
from .blocks import Blocks


class DoubleBuffer(Blocks):
    """See cl/textbook/double_buffer.cl."""

    name = "double_buffer"
    summary = "block with two pairs of tiles: one is loaded while the other is multiplied"
    tiles = (
        TileConfig(bm=64, bn=64, bk=16, tm=4, tn=4),
        TileConfig(bm=4, bn=4, bk=4, tm=2, tn=2),
    )
    pairs_of_tiles = 2
