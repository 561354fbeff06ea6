"""How the packed kernel divides a product: register tile, macro-tiles, ranges of K.

Pure arithmetic on a problem and a device. The limits are measured; docs/kernels/packed.md says on which
devices.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from ...problem.dtypes import COMPLEX
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Workspace, round_up
from ..listed import misfits
from .blocking import PAGE, UNROLL_K, blocks, steps_from_memory, steps_in_place
from .packing import (
    FEW_TILES,
    INSIDE,
    SHORT_K,
    can_read_b,
    must_convert_a,
    packings,
    packs_a,
    packs_b,
    row_bytes,
)
from .pieces import range_sums

# Register tiles, rows x vectors of reals, best first, by the width of a vector register in bits. The
# accumulators, a row of B and one number of A must fit the registers: 32 of 512 bits, 16 of 256 bits, and
# 32 (Neon) or 16 (SSE) of 128 bits. For Neon, compilers read numbers of A ahead, so that more than four rows
# spill (docs/kernels/packed.md).
_REGISTER_TILES = {512: ((8, 2), (12, 2), (8, 3)), 256: ((6, 2), (4, 3)), 128: ((4, 3), (4, 2))}
# The same for complex numbers summed in order, whose real and imaginary parts of A share their sums: twice as
# many rows, as far as the registers hold the second row of B too.
_ORDERED_COMPLEX_TILES = {512: ((16, 2),), 256: ((8, 2),), 128: ((4, 2),)}
_NARROW_TILES = {512: (8, 1), 256: (8, 1), 128: (4, 1)}  # where one vector covers a row of out
LANE_BYTES = 16  # of the shortest vectors of turn.h
_LONE_VECTOR = 1.4  # time of a tile of one vector, with a load for each multiply-add. Zen 5, 2026-11-30
_LATER_TILE = 0.05  # a later tile of the list counts as slower by this, if nothing else tells them apart
_PANELS_BYTES = 16 << 20  # of A's panels for each compute unit: docs/kernels/packed.md
_GROUPS_A_UNIT = 4  # work-groups for each compute unit, so that all end at about the same time
_SPLIT_K = 512  # fewest steps of K in a range
# With K at least this many times M and N, K is split before macro-tiles get smaller: those read more
_LONG_K = 4
# B is read as a stream if it is larger than this many second-level caches and used by at most that many rows
# of tiles. A smaller one, of the third level, is read faster as if it were in the second.
_FAR_CACHES, _STREAM_TILES = 8, 6


def sum_size(problem: GemmProblem) -> int:
    """Bytes of an element's sums. A complex element has four real sums until it is stored, or two if they
    must be in order.
    """
    return problem.sums.nbytes_of_real * problem.sums.planes ** (1 if problem.reproducible else 2)


def vector_bits(problem: GemmProblem, device: DeviceInfo) -> int:
    """Width in bits of the vectors of the sums. A sum modulo a number asks for its place in the stack, which
    functions that are compiled for the processor itself cannot.
    """
    return device.vector_bits if problem.moduli else device.widest_bits


def seen(problem: GemmProblem, config: TileConfig) -> GemmProblem:
    """The product that cl/cpu/packed.cl computes: the transposed one with option ``swapped``."""
    return problem.transposed if config.named.get("swapped") else problem


def may_swap(problem: GemmProblem) -> bool:
    """Whether the transposed product has the same bits. A complex one in order adds other products first."""
    return not (problem.reproducible and problem.acc_type in COMPLEX)


def all_shapes(problem: GemmProblem, device: DeviceInfo) -> list[TileConfig]:
    """Configurations of the product, and of the transposed one where that packs less, as a transposed B would
    be packed as it is, or where its rows fill vectors and those of the product do not.
    """
    found = shapes(problem, device)
    if not ((problem.trans_b or (problem.trans_a and _is_narrow(problem, device))) and may_swap(problem)):
        return found
    other = shapes(problem.transposed, device)
    return found + [c.with_options(swapped=1) for c in other]


def shapes(problem: GemmProblem, device: DeviceInfo) -> list[TileConfig]:
    """Configurations: a register tile of TM x TN elements in vectors of VEC reals, and BM x BN x BK, the
    largest macro-tile. Options ``pack_a`` and ``pack_b``: whether the operand is copied into panels.
    """
    bits = vector_bits(problem, device)
    reals = problem.sums.planes
    lanes = bits // 8 // problem.sums.nbytes_of_real
    found = _register_tiles(problem, device)
    if problem.n * reals <= lanes:
        found = (_NARROW_TILES[bits], *found)
    # Fewer rows than a tile's would have to be packed. One row is for matvec, few columns are for small, and
    # what is converted is packed
    is_low = problem.m > 1 and problem.n * reals >= lanes and not must_convert_a(problem)
    most = problem.m if is_low else math.inf
    fitting = dict.fromkeys((_height(rows // reals, most), vectors) for rows, vectors in found)
    tiles = [_tile(rows, vectors * lanes // reals, lanes, problem, device) for rows, vectors in fitting]
    chosen = [_packing(t, problem, device, a, b) for t in tiles for a, b in packings(problem, t, device)]
    both = _packing(tiles[0], problem, device, True, True)
    chosen += [] if both in chosen else [both]
    packed = {(c.tm, c.tn, c.named["pack_a"]): c for c in chosen if packs_b(problem, c)}
    chosen += [_packing_inside(c, problem, device) for c in packed.values()]
    return [c if (n := split_k(problem, c, device)) == 1 else replace(c, split_k=n) for c in chosen]


def _is_narrow(problem: GemmProblem, device: DeviceInfo) -> bool:
    """Whether a row of the result has fewer reals than a register tile, and than a column."""
    _, vectors = _register_tiles(problem, device)[0]
    reals = vectors * vector_bits(problem, device) // 8 // problem.sums.nbytes_of_real
    return problem.n < problem.m and problem.n * problem.sums.planes < reals


def _height(tallest: int, most: float) -> int:
    """Rows of a register tile: the *tallest* that has at most so many."""
    return next(rows for rows in (tallest, 4, 2, 1) if rows <= max(1, min(tallest, most)))


def _register_tiles(problem: GemmProblem, device: DeviceInfo) -> tuple[tuple[int, int], ...]:
    ordered = problem.reproducible and problem.sums.planes == 2
    return (_ORDERED_COMPLEX_TILES if ordered else _REGISTER_TILES)[vector_bits(problem, device)]


def least(problem: GemmProblem) -> GemmProblem:
    """*problem* with M and N of the smallest product of a list, which a register tile must fit. Where rows
    of A are divided it may have more than the group."""
    if not problem.products:
        return problem
    return replace(problem, **{name: min(getattr(one, name) for one in problem.products) for name in "mn"})


def shapes_of_list(problem: GemmProblem, device: DeviceInfo) -> list[TileConfig]:
    """Configurations for a list: register tiles that fit its smallest product, which is read as it lies; but
    if B cannot be, each work-group packs what it uses.
    """
    smallest, reals, typical = least(problem), problem.sums.planes, problem.typical
    bits = vector_bits(problem, device)
    widest = bits // 8 // problem.sums.nbytes_of_real
    narrowest = LANE_BYTES // problem.sums.nbytes_of_real
    widths = [(2, widest), *((1, lanes) for lanes in (widest, widest // 2, widest // 4) if lanes > narrowest)]
    fitting = [one for one in widths if math.prod(one) <= smallest.n * reals]
    vectors, lanes = fitting[0] if fitting else (1, narrowest)
    best = _NARROW_TILES[bits] if vectors == 1 else _register_tiles(problem, device)[0]
    tile = _tile(_height(best[0] // reals, smallest.m), vectors * lanes // reals, lanes, typical, device)
    plain = _packed(tile, tile.bm, tile.bn, tile.bk, False, False)
    if can_read_b(smallest, plain):
        return [replace(plain, bk=steps_in_place(device.caches, row_bytes(problem), plain.bk))]
    return [_packing_inside(plain, problem, device)]


def misfits_of_list(problem: GemmProblem, config: TileConfig) -> list[str]:
    """Why *config* does not fit a list. Empty if it does, or if *problem* is none."""
    if not problem.is_listed:
        return []
    smallest, reasons = least(problem), misfits(problem, config)
    if packs_a(smallest, config) or config.named.get("swapped"):
        reasons.append(f"in a list A is read as it lies, in tiles that the smallest product has: {config}")
    if packs_b(smallest, config) and config.named.get("pack_b") != INSIDE:
        reasons.append(f"in a list B is read as it lies, or packed by each work-group: {config}")
    return reasons


def padded_products(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Multiply-adds of the register tiles, those past the result's edge included, times the relative time of
    a multiply-add in a tile of this shape.

    With few tiles or short K, and with narrow vectors, other tiles than the first of _REGISTER_TILES have
    brought nothing. There they count as the first one, and a little more. So does a tile of three vectors
    with B in place, which is slower on every driver.
    """
    bits, reals = vector_bits(problem, device), problem.sums.planes
    listed = _REGISTER_TILES[bits]
    shape = (config.tm * reals, config.tn * reals // config.vec)
    many = problem.m > FEW_TILES * 8 // reals and problem.k > SHORT_K
    if bits == 512 and many:
        wide = shape == (8, 3) and packs_b(problem, config)
        slower = device.wide_tile_cost if wide else 1.0 + _LATER_TILE * (shape != listed[0])
        rows = problem.m
    else:
        slower = 1.0 + _LATER_TILE * (listed.index(shape) if shape in listed else 0)
        shape = shape if shape[1] == 1 else listed[0]
        rows = round_up(problem.m, max(1, shape[0] // reals))
    vectors, whole = -(-problem.n * reals // config.vec), shape[1]
    columns: float = round_up(vectors, whole)
    if vectors % whole == 1 < whole and reals == 1 and config.named.get("pack_b") in (0, INSIDE):
        columns = vectors - 1 + _LONE_VECTOR
    return rows * columns * config.vec / reals * problem.k * problem.batch * slower


def _tile(tm: int, tn: int, lanes: int, problem: GemmProblem, device: DeviceInfo) -> TileConfig:
    """The largest macro-tile. With split-K it is twice as high, as partial sums are kept in workspace."""
    size = problem.sums.nbytes
    found = blocks(device.caches, tm, tn, size, sum_size(problem), device.local_mem_size)
    tile = TileConfig(bm=found.mc, bn=found.nc, bk=found.kc, tm=tm, tn=tn, vec=lanes)
    if _long_k(problem) and split_k(problem, shared := replace(tile, bm=2 * found.mc), device) > 1:
        return shared
    return tile


def _packing(config: TileConfig, problem: GemmProblem, device: DeviceInfo, a: bool, b: bool) -> TileConfig:
    bm, bn, bk = config.bm, config.bn, config.bk
    if not b and can_read_b(problem, config):
        bk = steps_in_place(device.caches, row_bytes(problem), bk)
        if _is_stream(problem, config.tm, device):
            bn = max(1, PAGE // problem.sums.nbytes // config.tn) * config.tn
            bm = max(1, bm * config.bn // bn // config.tm) * config.tm
            bk = steps_from_memory(device.caches, reused=problem.m > 2 * config.tm)
    return _packed(config, bm, bn, bk, a, b)


def _packing_inside(config: TileConfig, problem: GemmProblem, device: DeviceInfo) -> TileConfig:
    """The same with B packed by each work-group: a panel in the first level, used by higher macro-tiles."""
    size = problem.sums.nbytes
    kc = steps_in_place(device.caches, 1, config.bk)
    room = device.local_mem_size - kc * config.tn * size
    found = blocks(device.caches, config.tm, config.tn, size, sum_size(problem), room, kc)
    return _packed(config, found.mc, found.nc, kc, config.named["pack_a"], INSIDE)


def _packed(tile: TileConfig, bm: int, bn: int, bk: int, pack_a: int, pack_b: int) -> TileConfig:
    options = (("pack_a", int(pack_a)), ("pack_b", int(pack_b)))
    return TileConfig(bm, bn, bk, tm=tile.tm, tn=tile.tn, vec=tile.vec, options=options)


def _is_stream(problem: GemmProblem, tm: int, device: DeviceInfo) -> bool:
    """Whether reading B in place limits the speed: it is in no cache, and few tiles of *tm* rows use it."""
    few = problem.m <= _STREAM_TILES * tm
    return few and row_bytes(problem) * problem.k > _FAR_CACHES * device.caches.l2


class Cut(NamedTuple):
    """The macro-tiles of one product: mc x nc elements each."""

    mc: int
    nc: int
    rows: int
    columns: int

    @property
    def rows_first(self) -> bool:
        """Whether work-groups are numbered down the columns of the result, so that those that run at the same
        time share columns of B. If a macro-tile is wider than high, this reads less than sharing rows of A.
        """
        return self.nc > self.mc and self.rows > 1


class Part(NamedTuple):
    """Rows of the result whose A is in panels at the same time, of products next to each other in a stack."""

    first_row: int
    last_row: int  # the first row behind it
    first_entry: int
    entries: int

    @property
    def rows(self) -> int:
        return self.last_row - self.first_row


def panels_room(device: DeviceInfo) -> int:
    """The most bytes that panels of A may take."""
    return min(_PANELS_BYTES * device.compute_units, device.max_mem_alloc_size)


def parts(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[Part]:
    """The parts of the product: one, unless A is packed and its panels would take more than panels_room().

    Only a part of a single row of register tiles may take more.
    """
    m, batch = problem.m, problem.batch
    if not packs_a(problem, config):
        return [Part(0, m, 0, batch)]
    tile_row = config.tm * round_up(problem.k, UNROLL_K) * problem.sums.nbytes
    most = panels_room(device) // max(1, tile_row)  # rows of tiles
    each = -(-m // config.tm)  # those of one product
    entries = batch if any(problem.batch_strides.a) else 1
    if each * entries <= most:
        return [Part(0, m, 0, batch)]
    if each <= most:
        return [Part(0, m, at, length) for at, length in _ranges(entries, most // each)]
    rows = [(at * config.tm, length * config.tm) for at, length in _ranges(each, max(1, most))]
    return [
        Part(at, min(m, at + length), entry, batch // entries)
        for entry in range(entries)
        for at, length in rows
    ]


def partial_sums(problem: GemmProblem, config: TileConfig, cuts: list[Cut]) -> tuple[Workspace, ...]:
    """The sums of each range of K, and a counter for each TN columns of a macro-tile. Parts, of *cuts*, use
    the same ones.
    """
    counters = max(c.rows * c.columns * c.nc // config.tn for c in cuts)
    size = max(c.rows * c.mc * c.columns * c.nc for c in cuts) * sum_size(problem)
    return range_sums(problem, config.split_k, counters * problem.batch, size)


def _ranges(length: int, most: int) -> list[tuple[int, int]]:
    """(start, length) of the fewest ranges of at most *most*, of about equal length."""
    step = -(-length // -(-length // most))
    return [(at, min(step, length - at)) for at in range(0, length, step)]


def cut(problem: GemmProblem, config: TileConfig, device: DeviceInfo, part: Part | None = None) -> Cut:
    """Macro-tiles of *part*, or of all rows. They are smaller than BM x BN if that keeps more units busy."""
    part = part or Part(0, problem.m, 0, problem.batch)
    inside, length = config.named.get("pack_b") == INSIDE, part.rows
    groups = _groups_wanted(problem, part.entries, device)
    is_stream = not packs_b(problem, config) and _is_stream(problem, config.tm, device)
    splits = _long_k(problem) or (is_stream and not problem.reproducible)
    if splits:
        groups = -(-groups // max(1, problem.k // _SPLIT_K))  # split-K gives the other work-groups
    # 1. The widest, and so the fewest columns of macro-tiles. Where each row of them packs B anew, there are
    # as many columns as work-groups.
    widest = _extent(problem.n, config.bn, config.tn, config.tn, groups) if inside else config.bn
    columns = -(-problem.n // widest)
    # 2. The height: as many rows as give each column its work-groups, and compute units that end together.
    short = stores_most(problem, device) and not inside
    tallest = min(config.bm, 2 * config.tm) if short else config.bm
    mc = _extent(length, tallest, 2 * config.tm, config.tm, -(-groups // columns))
    if not splits:
        mc = _balanced(length, mc, config.tm, columns * part.entries, device.compute_units)
    rows = -(-length // mc)
    # 3. The width: as many columns as give each row its work-groups.
    nc = _extent(problem.n, widest, config.tn, config.tn, -(-groups // rows))
    return Cut(mc, nc, rows, -(-problem.n // nc))


def range_of_k(problem: GemmProblem, config: TileConfig) -> int:
    """Steps of K in each of the ranges; the last one may have fewer."""
    return round_up(-(-problem.k // config.split_k), UNROLL_K)


def stores_most(problem: GemmProblem, device: DeviceInfo) -> bool:
    """Whether storing the result limits the speed: K is short, and one product takes more than half of the
    first-level cache.
    """
    m, n, k = problem.m, problem.n, problem.k
    return k <= SHORT_K and (m * n + m * k + k * n) * sum_size(problem) > device.caches.l1 // 2


def _long_k(problem: GemmProblem) -> bool:
    """Whether K is split before macro-tiles get smaller."""
    return problem.k >= _LONG_K * max(problem.m, problem.n) and not problem.reproducible


def split_k(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """The number of ranges of K: more than 1 where there are fewer macro-tiles than work-groups wanted."""
    if not _may_split_k(problem):
        return 1
    found = cut(problem, config, device)
    lacking = _groups_wanted(problem, problem.batch, device) // (found.rows * found.columns)
    return max(1, min(lacking, problem.k // _SPLIT_K))


def _may_split_k(problem: GemmProblem) -> bool:
    return not problem.reproducible and problem.k >= 2 * _SPLIT_K


def _groups_wanted(problem: GemmProblem, batch: int, device: DeviceInfo) -> int:
    """Work-groups of each of *batch* products. On one unit none waits for another, and each would pack B."""
    if device.compute_units == 1 and not _may_split_k(problem):
        return 1
    return -(-_GROUPS_A_UNIT * device.compute_units // batch)


def _extent(length: int, largest: int, smallest: int, multiple: int, wanted: int) -> int:
    """The extent of a macro-tile along one axis: *wanted* equal ones, or fewer if they get too small."""
    count = max(-(-length // largest), min(wanted, length // smallest), 1)
    return min(largest, round_up(-(-length // count), multiple))


def _balanced(length: int, extent: int, multiple: int, others: int, units: int) -> int:
    """*extent*, or a smaller one by which *units* compute units end sooner, each with whole work-groups.

    *others* work-groups share each of the parts of *length*. Fewer work-groups than units stay as they are.
    """
    fewest = -(-length // extent)
    if fewest * others < units or fewest * others % units == 0:
        return extent
    extents = [round_up(-(-length // count), multiple) for count in range(fewest, fewest + units)]
    return min(extents, key=lambda one: -(-(-(-length // one) * others) // units) * one)
