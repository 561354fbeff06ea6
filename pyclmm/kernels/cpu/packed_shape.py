"""How the packed kernel cuts a product: register tile, macro-tiles, ranges of K, what is packed.

Pure arithmetic on a problem and a device. The limits are measured ones; docs/kernels/packed.md says
where.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...problem.dtypes import COMPLEX, dtype_of
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import round_up

# Register tiles, rows x vectors of reals, best first, by the width of a vector register in bits:
# accumulators, a row of B and one number of A must fit 32 registers of 512 bits, 16 of 256, and
# either 32 (Neon) or 16 (SSE) of 128.
_REGISTER_TILES = {512: ((8, 2), (12, 2), (8, 3)), 256: ((6, 2), (4, 3)), 128: ((4, 3), (8, 2), (8, 3))}
_SUM_BYTES = 1 << 17  # of sums that a work-group keeps: an eighth to a half of a core's second cache
# Steps of K between two visits of the same sums: with B in panels; with B in place; in place with
# rows a multiple of a page apart, of which a cache holds few.
_KC_PANELS, _KC_IN_PLACE, _KC_PAGES = 1024, 256, 64
# The same where B comes from memory: as many rows of it are read on side by side. Of rows a page apart the
# first cache keeps eight for the next tile.
_KC_STREAM, _KC_STREAM_KEPT = 16, 8
_GROUPS_A_UNIT = 4  # work-groups for each compute unit, so that all end at about the same time
_SPLIT_K = 512  # fewest steps of K worth a range of their own
_LONG_K = 4  # K this many times M and N: ranges of it before smaller macro-tiles, which read more
_FEW_TILES = 4  # rows of tiles up to which packing B costs more than it saves
SHORT_K = 64  # up to here storing costs most: few rows at a time, so that each is written in a stream
_PAGE = 4096  # rows this far apart fall into the same few lines of a cache
_NEAR = 2048  # rows no further apart share pages
_SMALL_BYTES = 1 << 20  # an operand up to this size stays in the second cache
UNROLL_K = 4  # as in packed_tile.h


def planes(problem: GemmProblem) -> int:
    """Reals in an element of the accumulator's type."""
    return 2 if problem.acc_type in COMPLEX else 1


def real_size(problem: GemmProblem) -> int:
    """Bytes of one of them."""
    return dtype_of(problem.acc_type).itemsize // planes(problem)


def sum_size(problem: GemmProblem) -> int:
    """Bytes of an element's sums; a complex one has four reals until it is stored."""
    return real_size(problem) * planes(problem) ** 2


def candidates(problem: GemmProblem, device: DeviceInfo) -> list[TileConfig]:
    """Configurations, best first: TM x TN elements in vectors of VEC reals, BM x BN x BK the largest
    macro-tile; the options PACK_A and PACK_B say what is copied into panels.
    """
    bits = device.vector_bits
    parts = planes(problem)
    lanes = bits // 8 // real_size(problem)
    shapes = _REGISTER_TILES[bits]
    if bits == 512 and problem.m > _FEW_TILES * 8 // parts and problem.k > SHORT_K:
        shapes = tuple(sorted(shapes, key=lambda s: _cost(problem.n * parts, s, lanes, device)))
    if problem.n * parts <= lanes:  # one vector covers a row of out
        shapes = ((8, 1), *shapes)
    tiles = [
        _tile(rows // parts, vectors * lanes // parts, lanes, problem, device) for rows, vectors in shapes
    ]
    chosen = [_packing(t, problem, _worth_packing_a(problem, t), _worth_packing_b(problem, t)) for t in tiles]
    chosen.append(_packing(tiles[0], problem, True, True))
    return [replace(c, split_k=split_k(problem, c, device)) for c in chosen]


def _cost(columns: int, shape: tuple[int, int], lanes: int, device: DeviceInfo) -> float:
    """Relative time of a tile of that shape: what columns that are not there cost, too."""
    wide = device.wide_tile_cost if shape == (8, 3) else 1.0
    return round_up(columns, shape[1] * lanes) * wide


def _tile(tm: int, tn: int, lanes: int, problem: GemmProblem, device: DeviceInfo) -> TileConfig:
    """The largest macro-tile, at most 256 columns wide, of which local memory has room for the sums;
    twice as large where K is cut, because partial sums wait in workspace.
    """

    def of_size(nbytes: int) -> TileConfig:
        room = nbytes // sum_size(problem)
        bn = max(1, min(256, room // tm) // tn) * tn
        bm = max(1, room // bn // tm) * tm
        return TileConfig(bm=bm, bn=bn, bk=_KC_PANELS, tm=tm, tn=tn, vec=lanes)

    shared = of_size(2 * _SUM_BYTES)
    if _long_k(problem) and split_k(problem, shared, device) > 1:
        return shared
    return of_size(min(_SUM_BYTES, device.local_mem_size))


def _packing(config: TileConfig, problem: GemmProblem, a: bool, b: bool) -> TileConfig:
    config = replace(config, options=(("pack_a", int(a)), ("pack_b", int(b))))
    if packs_b(problem, config):
        return config
    if _streams(problem, config):
        bn = max(1, _PAGE // dtype_of(problem.acc_type).itemsize // config.tn) * config.tn
        bm = max(1, config.bm * config.bn // bn // config.tm) * config.tm
        return replace(config, bm=bm, bn=bn, bk=_KC_STREAM if problem.m <= 2 * config.tm else _KC_STREAM_KEPT)
    return replace(config, bk=_KC_PAGES if _row_bytes(problem) % _PAGE == 0 else _KC_IN_PLACE)


def _streams(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether B is used a few times, in place, and comes from memory: reading it decides."""
    few = problem.m <= _FEW_TILES * config.tm and not packs_b(problem, config)
    return few and _row_bytes(problem) * problem.k > _SMALL_BYTES


def packs_a(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether A goes into panels: because *config* says so, or a tile could not read it in place."""
    unreadable = problem.a_type != problem.acc_type or problem.conj_a or problem.m < config.tm
    return unreadable or config.option("pack_a", 1) != 0


def packs_b(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether B goes into panels, likewise."""
    unreadable = problem.b_type != problem.acc_type or problem.conj_b or problem.trans_b
    return unreadable or problem.n < config.tn or config.option("pack_b", 1) != 0


def _worth_packing_a(problem: GemmProblem, config: TileConfig) -> bool:
    """A is read one number at a time: by rows that costs nothing extra, but where they are pages apart."""
    size = dtype_of(problem.acc_type).itemsize
    apart = abs(problem.lda) * size
    if problem.trans_a:
        return apart % _PAGE == 0 or problem.m * problem.k * size > _SMALL_BYTES
    return apart % _PAGE == 0 and apart > _PAGE and _worth_packing_b(problem, config)


def _worth_packing_b(problem: GemmProblem, config: TileConfig) -> bool:
    """Rows of B a page apart displace each other, vectors across cache lines take two loads, and a B larger
    than a cache, its rows far apart, takes a page for each of them.
    """
    if problem.m <= _FEW_TILES * config.tm or problem.k <= SHORT_K:  # used too seldom
        return False
    row = _row_bytes(problem)
    crossing = row % (config.vec * real_size(problem)) != 0
    return row % _PAGE == 0 or ((crossing or row > _NEAR) and row * problem.k > _SMALL_BYTES)


def _row_bytes(problem: GemmProblem) -> int:
    """The distance of B's rows."""
    return abs(problem.ldb) * dtype_of(problem.acc_type).itemsize


@dataclass(frozen=True)
class Cut:
    """The macro-tiles of one product: mc x nc elements each."""

    mc: int
    nc: int
    rows: int
    columns: int

    @property
    def rows_first(self) -> bool:
        """Whether work-groups go down the result first, so that those at work at the same time share
        columns of B: that reads less than sharing rows of A where a macro-tile is wider than high.
        """
        return self.nc > self.mc and self.rows > 1


def cut(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Cut:
    """Macro-tiles, smaller than BM x BN where that keeps more compute units busy."""
    wanted = _groups_wanted(problem, device)
    if _long_k(problem) or _streams(problem, config):
        wanted = -(-wanted // max(1, problem.k // _SPLIT_K))  # the rest are ranges of K
    columns = -(-problem.n // config.bn)
    tallest = config.bm if problem.k > SHORT_K else 2 * config.tm
    mc = _extent(problem.m, tallest, 2 * config.tm, config.tm, -(-wanted // columns))
    rows = -(-problem.m // mc)
    nc = _extent(problem.n, config.bn, config.tn, config.tn, -(-wanted // rows))
    return Cut(mc, nc, rows, -(-problem.n // nc))


def _long_k(problem: GemmProblem) -> bool:
    return problem.k >= _LONG_K * max(problem.m, problem.n)


def split_k(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Into how many ranges K is cut, because the macro-tiles alone are too few."""
    found = cut(problem, config, device)
    lacking = _groups_wanted(problem, device) // (found.rows * found.columns)
    return max(1, min(lacking, problem.k // _SPLIT_K))


def _groups_wanted(problem: GemmProblem, device: DeviceInfo) -> int:
    return -(-_GROUPS_A_UNIT * device.compute_units // problem.batch)


def _extent(length: int, largest: int, smallest: int, multiple: int, wanted: int) -> int:
    """The extent of about equal macro-tiles along one axis, *wanted* of them if they are not too small."""
    count = max(-(-length // largest), min(wanted, length // smallest), 1)
    return min(largest, round_up(-(-length // count), multiple))
