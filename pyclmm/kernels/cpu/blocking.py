"""How large the blocks of `packed` are: arithmetic on the caches that a compute unit has.

After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), and Low, Igual, Smith
and Quintana-Orti, "Analytical Modeling Is Enough for High-Performance BLIS" (2016). Of the second-level cache
a block of A (mc x kc) gets half, a panel of B (kc x nr) a quarter, the sums (mc x nc) an eighth.

Those papers keep the panel of B in half of the first-level cache. That is the least here. A longer panel
comes from the second-level cache, which delivers twice what a register tile takes, and then the sums are
loaded and stored less often: on Zen 4 a panel in half of the first level (kc = 128) is 0 to 13 % slower than
one of kc = 1024 (docs/kernels/packed.md).
"""

from __future__ import annotations

from typing import NamedTuple

from ..device import Caches
from ..interface import round_up

UNROLL_K = 4  # as in packed_tile.h
PAGE = 4096  # bytes; rows this far apart map to the same few cache lines
_LONGEST_KC = 1024  # steps. Beyond, the sums take no time: 2048 is not faster on Zen 4
_WIDEST_NC = 256  # columns of a macro-tile; wider ones leave some compute units without work
_MOST_FEW = 16  # FEW_STEPS of packed.cl


class BlockSizes(NamedTuple):
    """The largest blocks: kc steps of K, macro-tiles of mc x nc elements."""

    kc: int
    mc: int
    nc: int


def blocks(
    caches: Caches, tm: int, tn: int, size: int, sum_size: int, sum_bytes: int, longest: int = _LONGEST_KC
) -> BlockSizes:
    """The blocks of a register tile of tm x tn elements of *size* bytes, whose sums take *sum_size* each.

    *sum_bytes*: the most that the sums of a macro-tile may take, besides an eighth of the second level.
    *longest*: the most steps of K.
    """
    panel = max(caches.l1 // 2, caches.l2 // 4)
    kc = _multiple(min(longest, panel // (tn * size)), UNROLL_K)
    room = min(caches.l2 // 8, sum_bytes) // sum_size
    mc = _multiple(min(caches.l2 // 2 // (kc * size), room // tn), tm)
    nc = _multiple(min(_WIDEST_NC, room // mc), tn)
    return BlockSizes(kc, mc, nc)


def equal_steps(length: int, longest: int) -> int:
    """The steps of K, at most *longest*, that divide *length* into equal parts, but for UNROLL_K."""
    count = max(1, -(-length // longest))
    return min(longest, max(UNROLL_K, round_up(-(-length // count), UNROLL_K)))


def steps_in_place(caches: Caches, row_bytes: int, kc: int) -> int:
    """Steps of K where B is in place: as many as there are lines in half of the first level.

    The next tile then finds the rows there, as nothing prefetches them. Of rows that are a multiple of a page
    apart a cache keeps few lines; a quarter of those of the second level may be of one panel.
    """
    if row_bytes % PAGE == 0:
        return _multiple(min(kc, caches.l2 // PAGE // 4), UNROLL_K)
    return _multiple(min(kc, caches.l1 // 2 // caches.line), UNROLL_K)


def steps_from_memory(caches: Caches, reused: bool) -> int:
    """Steps of K where B comes from memory: the number of its rows that are read side by side.

    If the next register tile reads them again (*reused*), the first level must keep them: of rows that are
    pages apart, one for each of its pages.
    """
    return _multiple(min(_MOST_FEW, caches.l1 // PAGE), UNROLL_K) if reused else _MOST_FEW


def _multiple(length: int, of: int) -> int:
    """The largest multiple of *of* up to *length*, at least *of* itself."""
    return max(1, length // of) * of
