"""The geometry of the `register` family's tiles: what cl/gpu/register_tile.h computes, for the host.

Options of a configuration, besides the fields of TileConfig (``vec`` is CHUNK):
    held     1: tiles are staged in registers, in plain OpenCL C; 0: NVIDIA's asynchronous copies
    slices   into how many slices a step's K is cut within the work-group
    fetch_b  the k of a step at which the copies of B are issued (asynchronous copies only)
    vectors  1: for a CPU's compiler, which makes vectors of work-items (held, one slice, no rows)
    rows     1: the sums of all slices meet in local memory, and all work-items store rows (register_rows.cl).
             An aligned operand that is stored along K stays so in local memory
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from ...problem.dtypes import ELEMENTS, dtype_of
from ...problem.gemm import GemmProblem
from ..config import ACCESS, TileConfig, slices


def is_held(config: TileConfig) -> bool:
    """Whether tiles are staged in registers on their way to local memory."""
    return config.named.get("held", 1) == 1


def by_rows(config: TileConfig) -> bool:
    """Whether all work-items store rows of out, from sums in local memory."""
    return config.named.get("rows") == 1


def in_vectors(config: TileConfig) -> bool:
    """Whether the work-group has the two dimensions and the loop that suit a CPU's compiler."""
    return config.named.get("vectors") == 1


def side_by_side(config: TileConfig) -> int:
    """Work-items of a sub-group in a line. With vec 1 they have neighbouring columns."""
    return config.sgn // config.tn


def work_items(config: TileConfig) -> int:
    """The work-group's size."""
    return (config.bm // config.tm) * (config.bn // config.tn) * config.named.get("slices", 1)


def local_bytes(config: TileConfig, itemsize: int) -> int:
    """Bytes of a work-group's padded tiles, for any layout. The slices' sums take the tiles' place."""
    rows = 2 * config.bk  # of both tiles, padded on whichever side needs more
    if by_rows(config):
        rows = max(config.bm, config.bk) + max(config.bn, config.bk)
    padding = config.vec * rows
    tiles = config.stages * (config.bk * (config.bm + config.bn) + padding)
    sums = slices(config) * config.bm * (config.bn + config.vec) if by_rows(config) else 0
    return max(tiles, sums) * itemsize


def stored_as_summed(problem: GemmProblem, stored: str) -> bool:
    """Whether elements have the accumulator's bits, so that copying them needs no conversion."""
    integers = stored[-5:] == problem.acc_type[-5:] and problem.acc_type.startswith("uint")
    return stored == problem.acc_type or (integers and dtype_of(stored).kind in "iu")


@dataclass(frozen=True)
class Side:
    """One operand's tile: *width* rows of A or columns of B (BM or BN), *vec* elements in an access.
    *across*: the operand is stored along K, so that copying transposes the tile, unless *along*.
    """

    width: int
    vec: int
    across: bool
    pad: int
    along: bool = False

    def passes(self, config: TileConfig) -> tuple[int, int]:
        """(rows of A or columns of B, elements of K) that all work-items together fill in a pass."""
        items = work_items(config)
        if self.across:
            run = max(items // self.width, min(8, config.bk // self.vec, items))
            return items // run, run * self.vec
        k = max(1, items * self.vec // self.width)
        return items * self.vec // k, k


def sides(problem: GemmProblem, config: TileConfig) -> tuple[Side, Side]:
    """The tiles of A and B. An access has ``vec`` elements if every row starts aligned and has whole
    accesses, and no element is converted. An asynchronous copy that transposes moves single elements.
    """
    p, vec, (m, n, k) = problem, config.vec, problem.divisors
    kept = by_rows(config) and not is_held(config)
    operands = (
        (config.bm, not p.trans_a, p.a_type, p.conj_a, p.a_align, m),
        (config.bn, p.trans_b, p.b_type, p.conj_b, p.b_align, n),
    )
    found = []
    for width, across, stored, conj, align, length in operands:
        wide = vec > 1 and not conj and (k if across else length) % vec == 0 and align % ACCESS == 0
        wide = wide and (kept or not across or is_held(config)) and stored_as_summed(problem, stored)
        along = kept and wide and across
        found.append(Side(width, vec if wide else 1, across, vec if across else 0, along))
    return found[0], found[1]


def _mixed(config: TileConfig) -> Iterator[str]:
    """Options that do not go together."""
    c = config
    if by_rows(c) and c.split_k != 1:
        yield f"split_k {c.split_k}: must be 1 with rows=1, which stores out at once"
    if by_rows(c) and c.tm * c.tn % slices(c):
        yield f"slices {slices(c)}: must divide {c.tm} x {c.tn} with rows=1"
    if in_vectors(c) and (not is_held(c) or by_rows(c) or slices(c) != 1):
        yield "vectors=1 needs held 1, rows 0 and slices 1"
    if not is_held(c) and c.option("fetch_b", 1) < 1:
        yield "fetch_b 0: must be 1 or more with held=0, because the copies of B come after those of A"


@lru_cache(maxsize=256)
def misfits(config: TileConfig, acc_type: str) -> tuple[str, ...]:
    """Why the sizes of *config* do not divide each other as they must for any layout and alignment."""
    return tuple(_misfits(config, acc_type))


def _misfits(config: TileConfig, acc_type: str) -> Iterator[str]:
    c = config
    pairs = [("bm", c.bm, "sgm", c.sgm), ("sgm", c.sgm, "tm", c.tm), ("tm", c.tm, "vec", c.vec),
             ("bn", c.bn, "sgn", c.sgn), ("sgn", c.sgn, "tn", c.tn), ("tn", c.tn, "vec", c.vec),
             ("bk", c.bk, "2 slices", 2 * slices(c)), ("bk", c.bk, "vec", c.vec)]  # fmt: skip
    broken = [f"{x} {n} is no multiple of {y} {d}" for x, n, y, d in pairs if d < 1 or n < 1 or n % d]
    itemsize = ELEMENTS[acc_type].nbytes
    if c.vec not in (1, 2, 4) or c.vec * itemsize > ACCESS or (c.vec > 1 and c.vec * itemsize != ACCESS):
        broken.append(f"vec {c.vec}: accesses to {itemsize}-byte elements are {ACCESS} bytes or 1 element")
    if c.stages < 2 or (is_held(c) and c.stages != 2):
        broken.append(f"stages {c.stages}: must be 2 with held=1, 2 or more with asynchronous copies")
    broken += _mixed(c)
    yield from broken
    if broken:
        return
    if by_rows(c) and work_items(c) % c.bn:
        yield f"bn {c.bn}: must divide {work_items(c)} work-items with rows=1"
    if by_rows(c) and c.bk // slices(c) % c.vec:
        yield f"slices {slices(c)}: must be of a multiple of {c.vec} of bk {c.bk} with rows=1"
    for width, vec, across in product((c.bm, c.bn), {1, c.vec}, (False, True)):
        lines, k = Side(width, vec, across, 0).passes(c)
        if width % lines or c.bk % k:
            yield f"{work_items(c)} work-items do not fill a tile of {width} x {c.bk} evenly"
            return
