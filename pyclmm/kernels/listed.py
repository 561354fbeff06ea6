"""Many products in one launch: the tables by which work-groups find theirs (cl/include/listed.h)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..problem.dtypes import converter_of, dtype_of
from ..problem.gemm import MAX_GROUPS, GemmProblem, ListedProduct, Ragged
from .config import TileConfig
from .device import DeviceInfo
from .interface import ALARM, GROUP, LISTED, VERDICT, Arg, Launch, Program, Table, Work, Workspace, tiles_of

_ROW = 18  # PRODUCT of listed.h
_PLACES = ("a", "b", "c", "out", "bias", "m", "n", "k", "lda", "ldb", "ldo", "c_rs", "c_cs", "bias_stride")
_ITEMS = 256  # of a work-group that fills the tables on a device, at most
_MOST_GROUPS = 16  # work-groups that do
_TILE = 4  # ints of an entry
_FEW_STEPS = 1 << 16  # multiply-adds of a class on CPUs, times its tile's area: a launch takes about as long
_FEW_PRODUCTS = 256  # whose tiles take a GPU less time than a launch: two for each of an H200's units


def in_a_list(
    problem: GemmProblem,
    device: DeviceInfo,
    bm: int,
    bn: int,
    make: Callable[[int], Launch],
    reads_ahead: bool = False,
) -> Work:
    """The work of a list, or of ragged products, in tiles of BM x BN. *make* gives the launch of so many
    work-groups. Those of ragged products are as many as there may be tiles. *reads_ahead*: the processor
    fetches what lies behind a product, so only products of twice the mean K, or more, leave the list's order.
    """
    if problem.ragged is not None:
        return _ragged(problem, problem.ragged, device.group_items(_ITEMS), bm, bn, make)
    tiles = _tiles(problem.products, bm, bn, reads_ahead)
    tables = dict(zip(LISTED, (_rows(problem), tiles.view(np.int64)), strict=True))
    return Work((make(len(tiles) - 1),), tables=tables)


def misfits(problem: GemmProblem, config: TileConfig) -> list[str]:
    """Why no list is computed with *config*. Empty if one is, or if *problem* is none."""
    if problem.is_listed and config.split_k > 1:
        return [f"in a list K is not split: {config}"]
    return []


def size_classes(sizes: Sequence[tuple[int, int, int]], is_cpu: bool) -> list[tuple[int, int]]:
    """Products of one class are computed by one launch. *sizes*: M, N and K of each product.

    For GPUs it is the magnitude of the larger one of M and N; a few small products join larger ones, as a
    launch takes longer than their tiles. For CPUs, whose register tiles must fit into each product, it is
    that of both. There classes that have few multiply-adds together are one, with a tile that fits all of
    them: those take at most about twice as long, a launch longer.
    """
    if not is_cpu:
        sides = [min(max((max(m, n) - 1).bit_length(), 4), 8) for m, n, _ in sizes]
        upto = {side: sum(other <= side for other in sides) for side in set(sides)}
        least = min((side for side, count in upto.items() if count > _FEW_PRODUCTS), default=max(sides))
        return [(max(side, least), 0) for side in sides]
    own = [(min(m.bit_length(), 4), min(n.bit_length(), 6)) for m, n, _ in sizes]
    steps: Counter[tuple[int, int]] = Counter()
    for each, (m, n, k) in zip(own, sizes, strict=True):
        steps[each] += m * n * k
    joined: dict[tuple[int, int], tuple[int, int]] = {}
    rows, columns, total, members = 4, 6, 0, list[tuple[int, int]]()
    for each in sorted(steps, key=sum):
        both = min(rows, each[0]), min(columns, each[1])
        if total + steps[each] > _FEW_STEPS << sum(both):
            both, total, members = each, 0, []
        (rows, columns), total = both, total + steps[each]
        members.append(each)
        joined |= dict.fromkeys(members, both)
    return [joined[each] for each in own]


def _rows(problem: GemmProblem) -> Table:
    """The table of products."""
    convert, dtype = converter_of(problem.acc_type), dtype_of(problem.acc_type)
    rows = np.zeros((len(problem.products), _ROW), np.int64)
    for at, name in enumerate(_PLACES):
        rows[:, at] = [getattr(one, name) for one in problem.products]
    for at, name in ((14, "alpha"), (16, "beta")):
        with np.errstate(over="ignore"):
            own = np.array([convert(getattr(one, name)) for one in problem.products], dtype)
        rows[:, at : at + 2].view(dtype)[:, 0] = own
    return rows


def _tiles(products: tuple[ListedProduct, ...], bm: int, bn: int, reads_ahead: bool) -> Any:
    """The table of tiles, those with the largest K first, and how many there are before it."""
    sizes = np.array([one[:3] for one in products], np.int64)
    rows, columns, steps = -(-sizes[:, 0] // bm), -(-sizes[:, 1] // bn), sizes[:, 2]
    if reads_ahead:
        steps = np.maximum(np.frexp(steps / max(1, steps.mean()))[1], 1)  # how often twice the mean
    order = np.argsort(-steps, kind="stable")
    count = (rows * columns)[order]
    own = np.repeat(order, count)
    number = np.arange(len(own)) - np.repeat(np.cumsum(count) - count, count)
    tiles = np.full((1 + len(own), _TILE), -1, np.int32)
    tiles[0, 0] = len(own)
    tiles[1:, 0] = own
    tiles[1:, 1] = number % rows[own] * bm
    tiles[1:, 2] = number // rows[own] * bn
    return tiles


def _ragged(
    problem: GemmProblem, ragged: Ragged, items: int, bm: int, bn: int, make: Callable[[int], Launch]
) -> Work:
    """The launch that fills the tables from the sizes of the groups, and that of the product."""
    groups, along_k = ragged.groups, ragged.axis == "k"
    whole, across = tiles_of(problem, bm, bn), -(-problem.n // bn)
    # Each group may end within a tile, where the next one begins another. The rest is a product too.
    tiles = groups * whole if along_k else whole + groups * across
    nbytes = (1 + groups) * _ROW * 8, (1 + tiles) * _TILE * 4
    spaces = [Workspace(name, size) for name, size in zip(LISTED, nbytes, strict=True)]
    defines = (
        ("PRODUCT", _ROW), ("GROUP", GROUP), ("ITEMS", items), ("AXIS_K", int(along_k)),
        ("ROOM", MAX_GROUPS + 1), ("SIZE_64", int(ragged.size_type == "int64")),
        ("TRANS_A", int(problem.trans_a)), ("TRANS_B", int(problem.trans_b)),
    )  # fmt: skip
    one = np.zeros(16, np.uint8).view(dtype_of(problem.acc_type))
    one[0] = 1
    args: tuple[Arg, ...] = (
        *map(np.int32, (problem.m, problem.n, problem.k, groups)),
        *map(np.int64, (problem.lda, problem.ldb, problem.ldo)), np.int32(bm), np.int32(bn),
        *map(np.int64, (ragged.stride, *one.view(np.int64))),
        "group_sizes", "group_sizes_offset", *(space.symbol for space in (*spaces, ALARM, VERDICT)),
    )  # fmt: skip
    size = min(_MOST_GROUPS, -(-tiles // items)) * items
    fill = Launch(Program("ragged.cl", defines), "list_groups", (size,), (items,), args)
    return Work((fill, make(tiles)), (*spaces, ALARM, VERDICT))
