"""When results of `wgmma` leave while the next tile is multiplied, and what that brings.

See cl/nvidia/wgmma_drain.h.
"""

from __future__ import annotations

from math import ceil

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from .matrix_units import LINE_ALIGN, Operands

LOCAL_BYTES = 2 * 64 * 256  # behind the stages
_TILES = {(128, 256): 1.0, (128, 192): 1.02}  # with the factor by which each is slower
_BLOCKS = 9  # of K: fewer, and the kernel stores from registers
# What remains of the end of a tile; the same with A staged in registers
_LEFT, _LEFT_STAGED = 0.35, 0.7
_BYTES, _OTHERS = 0.93, 0.98  # besides, for elements of one byte and of more


def local_bytes(config: TileConfig) -> int:
    """Bytes of local memory besides the stages."""
    return LOCAL_BYTES if config.option("drain") else 0


def can_drain(problem: GemmProblem, config: TileConfig, operands: Operands) -> bool:
    """Whether the kernel can be built so, for a product as it computes it."""
    tile = (config.bm, config.bn) in _TILES and not config.option("alternate") and config.split_k == 1
    words = ELEMENTS[problem.out_type].nbytes == 4 and problem.out_align >= LINE_ALIGN
    plain = not problem.has_c and problem.bias == "none" and not problem.moduli
    pairs = not config.option("swapped") or operands.a_in_registers
    return tile and words and plain and pairs


def is_useful(problem: GemmProblem, config: TileConfig, tiles: int, units: int) -> bool:
    """Whether some work-group has a next tile, and blocks of K to hide results behind."""
    return tiles > units and ceil(problem.k / config.bk) >= _BLOCKS


def estimated_seconds(config: TileConfig, waves: int, main: float, store: float, operands: Operands) -> float:
    """Seconds of *waves* tiles, which would take *main* and then *store* each."""
    left = store * (_LEFT_STAGED if operands.a_in_registers else _LEFT)
    factor = _TILES[config.bm, config.bn] * (_BYTES if operands.unit.nbytes == 1 else _OTHERS)
    return factor * (waves * main + max(0, waves - 1) * left + store)
