"""Which operands the packed kernel packs, and which it reads where they lie.

Pure arithmetic, as in packed_shape.py, which has what follows from it.
"""

from __future__ import annotations

from typing import NamedTuple

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from .blocking import PAGE

# With at most this many rows of tiles, packing B costs more than it saves
FEW_TILES = 4
# Up to this K storing costs most. Macro-tiles then have few rows: each row is written as a stream.
SHORT_K = 64
# FEW_TILES where rows do not displace each other, or vectors are as wide as a line: rows of A times bytes of
# a vector, of complex numbers a quarter, of elements that are widened half. Zen 4, docs/kernels/packed.md
_USES = 128 * 64
INSIDE = 2  # the option pack_b: each work-group packs the columns of B that it uses
_NEAR = 2048  # bytes; rows at most this far apart share pages


def must_pack_a(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> bool:
    """Whether A in place would make the product so slow that packing it always pays.

    It is read one number at a time. That is as fast from rows in place, unless they are pages apart.
    """
    apart = abs(problem.lda) * problem.sums.nbytes
    displaced = apart % PAGE == 0 and apart > PAGE and not problem.trans_a
    return displaced and must_pack_b(problem, config, device)


def packings(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[tuple[bool, bool]]:
    """Which operands to pack, A and B: the ways that may be the fastest. The estimate decides between them.

    A transposed A in place, and a B whose vectors cross cache lines, make each step slower. To pack them
    costs a launch and a copy.
    """
    a, b = must_pack_a(problem, config, device), must_pack_b(problem, config, device)
    pays = crosses_lines(problem, config) and not (problem.trans_b or _few_uses(problem, config, device))
    return [(x, y) for x in ({a, True} if problem.trans_a else {a}) for y in ({b, True} if pays else {b})]


def crosses_lines(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether vectors of B in place are not aligned, so that all, or some, lie on two cache lines."""
    return problem.b_align < config.vec * problem.sums.nbytes_of_real


def packs_a(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether A is packed: *config* says so, or a register tile could not read A in place."""
    asked = config.named.get("pack_a", 1) != 0
    return asked or problem.m < config.tm or must_convert_a(problem)


def must_convert_a(problem: GemmProblem) -> bool:
    """Whether A is packed because elements change on the way."""
    return problem.conj_a or _narrow(problem.a_type, problem)


def packs_b(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether B is packed, likewise."""
    return config.named.get("pack_b", 1) != 0 or not can_read_b(problem, config)


def can_read_b(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether a register tile can read B in place."""
    unreadable = problem.sums.planes > 1 and _narrow(problem.b_type, problem)
    return not (unreadable or problem.conj_b or problem.trans_b or problem.n < config.tn)


class PackedOperands(NamedTuple):
    """Which operands are packed: ``a`` and ``b`` by launches of their own, B ``inside`` by work-groups."""

    a: bool
    b: bool
    inside: bool


def packed(problem: GemmProblem, config: TileConfig) -> PackedOperands:
    """What *config* packs of *problem*."""
    inside = config.named.get("pack_b") == INSIDE
    return PackedOperands(packs_a(problem, config), not inside and packs_b(problem, config), inside)


def moves_whole(name: str, problem: GemmProblem) -> bool:
    """Whether vectors of such elements are moved as they are: real ones of the accumulator's type."""
    return name == problem.acc_type and problem.sums.planes == 1


def _narrow(name: str, problem: GemmProblem) -> bool:
    """Whether elements of this type are narrower than the accumulator's, so that reading widens them."""
    return ELEMENTS[name].nbytes < problem.sums.nbytes


def _few_uses(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> bool:
    """Whether B is used too few times to pay for packing it. Elements that are widened: each row of tiles
    widens them again.
    """
    narrow, vector = _narrow(problem.b_type, problem), config.vec * problem.sums.nbytes_of_real
    if row_bytes(problem) % PAGE == 0 and vector < device.caches.line:
        few = problem.m <= FEW_TILES * config.tm
    else:
        few = problem.m * problem.sums.planes**2 * vector * (2 if narrow else 1) <= _USES
    return few or (problem.k <= SHORT_K and not narrow)


def must_pack_b(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> bool:
    """The same of B. Three things make it slow. Rows a page apart displace each other in the cache. A vector
    that crosses a cache line takes two loads, whether rows or only B's address are not aligned; beyond the
    second level that is slower than packing. If B is larger than a cache and its rows are far apart, each
    row takes a page.
    """
    few = _few_uses(problem, config, device)
    if few or _narrow(problem.b_type, problem):
        return not few
    row, vector = row_bytes(problem), config.vec * problem.sums.nbytes_of_real
    large = row * problem.k > device.caches.l2
    half = vector < device.caches.line and row * problem.k > device.caches.l2 // 2
    crossing = crosses_lines(problem, config) and (large or half)
    return row % PAGE == 0 or crossing or (row > _NEAR and large)


def row_bytes(problem: GemmProblem) -> int:
    """Bytes from one row of B to the next."""
    return abs(problem.ldb) * ELEMENTS[problem.b_type].nbytes
