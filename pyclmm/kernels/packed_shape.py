"""How the packed kernel cuts a product: register tile, macro-tiles, shares of K, what is packed.

Pure arithmetic on a problem and a device. The limits are measured ones; docs/kernels/packed.md says
where.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config import TileConfig
from ..device import DeviceInfo
from ..dtypes import COMPLEX, dtype_of
from ..problem import GemmProblem
from .base import round_up

# Register tiles, rows x vectors of reals, best first, by the width of a vector register in bits:
# accumulators, a row of B and one number of A must fit 32 registers of 512 bits, 16 of 256, and
# either 32 (Neon) or 16 (SSE) of 128.
_REGISTER_TILES = {512: ((8, 2), (12, 2), (8, 3)), 256: ((6, 2), (4, 3)), 128: ((4, 3), (8, 2))}
_SUM_BYTES = 1 << 17  # of sums that a work-group keeps: an eighth to a half of a core's second cache
_KC = 1024  # steps of K between two visits of the same sums
_GROUPS_A_UNIT = 4  # work-groups for each compute unit, so that all end at about the same time
_SPLIT_K = 512  # fewest steps of K worth a share of their own
_PAGE = 4096  # rows this far apart fall into the same few lines of a cache
_DIRECT_BYTES = 1 << 20  # a B up to this size is read where it lies
UNROLL = 4  # as in packed_tile.h


def planes(problem: GemmProblem) -> int:
    """Reals in an element of the accumulator's type."""
    return 2 if problem.acc_type in COMPLEX else 1


def real_size(problem: GemmProblem) -> int:
    """Bytes of one of them."""
    return dtype_of(problem.acc_type).itemsize // planes(problem)


def sum_size(problem: GemmProblem) -> int:
    """Bytes of an element's sums; a complex one has four reals until it is stored."""
    return real_size(problem) * planes(problem) ** 2


def register_tiles(problem: GemmProblem, device: DeviceInfo) -> list[TileConfig]:
    """Candidates: TM x TN elements in vectors of VEC reals, BM x BN x BK the largest macro-tile."""
    bits = device.vector_bits
    parts = planes(problem)
    lanes = bits // 8 // real_size(problem)
    shapes = _REGISTER_TILES[bits]
    if problem.n * parts <= lanes:  # one vector covers a row of out
        shapes = ((8, 1), *shapes)
    return [
        _config(rows // parts, vectors * lanes // parts, lanes, sum_size(problem)) for rows, vectors in shapes
    ]


def _config(tm: int, tn: int, lanes: int, element_bytes: int) -> TileConfig:
    bn = max(1, 256 // tn) * tn
    bm = max(1, _SUM_BYTES // element_bytes // bn // tm) * tm
    return TileConfig(bm=bm, bn=bn, bk=_KC, tm=tm, tn=tn, vec=lanes)


@dataclass(frozen=True)
class Cut:
    """How one product is cut: mc x nc macro-tiles, K in ``splits`` shares of ``split_k`` steps."""

    mc: int
    nc: int
    tile_rows: int
    tile_columns: int
    splits: int
    split_k: int


def _shrunk(length: int, largest: int, tile: int, tiles_wanted: int, least: int) -> int:
    """The extent of macro-tiles along one axis: even, and at least *tiles_wanted* where possible."""
    count = max(-(-length // largest), min(tiles_wanted, length // (least * tile)), 1)
    return min(largest, round_up(-(-length // count), tile))


def cut(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Cut:
    """Macro-tiles small enough to keep every compute unit busy, then shares of K if there are too few."""
    wanted = -(-_GROUPS_A_UNIT * device.compute_units // problem.batch)
    nc = _shrunk(problem.n, config.bn, config.tn, 1, 1)
    tile_columns = -(-problem.n // nc)
    mc = _shrunk(problem.m, config.bm, config.tm, -(-wanted // tile_columns), 2)
    tile_rows = -(-problem.m // mc)
    if tile_rows * tile_columns < wanted:
        nc = _shrunk(problem.n, config.bn, config.tn, -(-wanted // tile_rows), 1)
        tile_columns = -(-problem.n // nc)
    splits = config.split_k
    if splits == 1:
        splits = max(1, min(wanted // (tile_rows * tile_columns), problem.k // _SPLIT_K))
    split_k = round_up(-(-problem.k // splits), UNROLL)
    return Cut(mc, nc, tile_rows, tile_columns, -(-problem.k // split_k) if split_k else 1, split_k)


def packs_a(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether A has to be copied into panels; where it lies by rows, a tile can read it there."""
    if problem.a_type != problem.acc_type or problem.conj_a or problem.m < config.tm:
        return True
    return problem.trans_a and _far_apart(problem.lda, problem.m, problem)


def packs_b(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether B has to be copied: rows far apart are slow to read again and again."""
    if problem.b_type != problem.acc_type or problem.conj_b or problem.trans_b:
        return True
    if problem.n < config.tn:
        return True
    return problem.m > 2 * config.tm and _far_apart(problem.ldb, problem.n, problem)


def _far_apart(ld: int, width: int, problem: GemmProblem) -> bool:
    size = dtype_of(problem.acc_type).itemsize
    return ld * size % _PAGE == 0 or width * problem.k * size > _DIRECT_BYTES
