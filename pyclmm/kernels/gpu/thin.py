"""`thin`: products with M or N at most 8, including matrix-vector products, at memory bandwidth.

The reading model estimates how long they take, as each reads its big operand once.
Throughput depends on how many bytes are in flight:

    in flight   bytes on their way to a compute unit: work-items x accesses ahead x bytes of an access
    enough      what a compute unit receives while one read of device memory waits
    rate        falls by sqrt(1 + (enough / in flight)^2)  (cost.waiting_factor)
    registers   limit how many work-groups a compute unit holds. The others run in later waves, and the last
                wave may have fewer bytes in flight

The constants were measured on an NVIDIA H200 (docs/kernels/register.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...problem.dtypes import COMPLEX, ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import ACCESS, TileConfig
from ..cost import ON_CPU, on_cpu, together, waiting_factor
from ..device import DeviceInfo
from ..interface import Kernel, Loops, Work, gemm_launch, gemm_program, round_up
from ..split_k import PartialSums, TileRange
from .tile import stored_as_summed

_WIDEST = 8  # the longest thin side
# (lanes, teams, depth). WALK: the big operand is stored across K; DOT: it is stored along K.
_WALK = ((8, 16, 4), (8, 32, 4), (8, 64, 4), (8, 64, 6), (4, 128, 4), (4, 4, 2), (1, 1, 1))
_WALK_ELEMENTS = ((32, 16, 8), *_WALK)  # where an access is one element
# The same where every sum must be in order, so that no two work-items share K.
_WALK_IN_ORDER = ((32, 1, 8), (64, 1, 8), (128, 1, 8), (32, 1, 4), (1, 1, 1))
_DOT_IN_ORDER = ((1, 32, 1), (1, 64, 1), (1, 128, 1), (1, 1, 1))
_DOT = ((64, 4, 2), (32, 2, 2), (4, 1, 1), (1, 1, 1))
# The reading model. Measured on an NVIDIA H200 (docs/kernels/register.md)
_LINE = 128  # bytes of a cache line: reading whole cache lines is fastest
_NARROW = 0.08  # slower by this where a work-group reads half a cache line of a row; 3 times for a quarter
# Reads of global memory: until the first accesses arrive, and for the sums at the end; more for each
# work-item
_START, _START_ITEM = 10.0, 3e-3
_SUMS = 2.3e-06  # the second launch, which adds partial sums, besides an empty launch
_PRODUCTS = 0.25  # fraction of the rate of multiply-adds: 8 x 8192 x 8192 float32 takes 103 us


class Thin(Kernel):
    """See cl/gpu/thin_walk.cl and thin_dot.cl. A work-group is ``teams`` teams of ``lanes`` work-items.

    ``depth`` is how many accesses a work-item has in flight, ``vec`` the elements of an access. With
    ``split_k`` 0, K is split into as many ranges as fill the device.
    """

    name = "thin"
    summary = "at most 8 rows or columns: reads the big operand once, at memory bandwidth"
    made_for = "gpu"
    accepts = Accepts(fields=GENERAL | IN_ORDER)
    options = ("depth", "lanes", "teams")

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if min(problem.m, problem.n) > _WIDEST:
            return f"{problem.m} x {problem.n} is not thin: one side must be at most {_WIDEST}"
        return None

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        one = TileConfig(vec=_widest(problem), split_k=int(problem.reproducible))
        names = ("lanes", "teams", "depth")
        found = (replace(one, options=dict(zip(names, shape, strict=True))) for shape in _shapes(problem))
        return [c for c in found if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        return _seconds(problem, config, _split_k(problem, config, device), device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        lanes, teams, depth = (config.option(name) for name in ("lanes", "teams", "depth"))
        if min(lanes, teams, depth) < 1 or lanes & (lanes - 1) or teams & (teams - 1):
            return ["lanes and teams must be powers of two, depth 1 or more"]
        if config.vec not in (1, _widest(problem)):
            return [f"vec {config.vec}: the big operand is read in accesses of {_widest(problem)} or 1"]
        handed = depth if _along_k(problem) else config.vec  # sums per work-item in local memory
        nbytes = _items(config) * handed * problem.sums.nbytes
        reasons = config.violations(device, (_items(config),), nbytes)
        too_many = device.too_many_steps(_steps(problem, config) * depth)
        return [*reasons, too_many] if too_many else reasons

    def out_of_order(self, problem: GemmProblem, config: TileConfig) -> str | None:
        """Work-items may share the rows and columns, but not K."""
        along = _along_k(problem)
        sharing = config.option("lanes" if along else "teams")
        if sharing > 1:
            return f"adds the sums of {sharing} work-items, which share K"
        return super().out_of_order(problem, config)

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        shared = "lanes" if _along_k(problem) else "teams"
        along = config.option(shared) * (_access(problem, config) if _along_k(problem) else 1)
        long = (_tile(problem, config),)
        found = Loops((), long, (along, along * config.option("depth")))
        return found if _thin_rows(problem) else found.exchanged

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        rows, q, tile = _thin_rows(problem), _thin_side(problem), _tile(problem, config)
        bm, bn = (q, tile) if rows else (tile, q)
        tiles = -(-max(problem.m, problem.n) // tile)
        k_range = round_up(-(-max(1, problem.k) // _split_k(problem, config, device)), ACCESS)
        tile_range = TileRange(0, tiles, max(1, -(-problem.k // k_range)))
        sums = PartialSums(problem, bm, bn, tile_range)
        along_k = _along_k(problem)
        name = "thin_dot" if along_k else "thin_walk"
        teams, depth = ("TEAMS", "LINES") if along_k else ("SLICES", "AHEAD")
        defines = [
            ("THIN_ROWS", int(rows)), ("Q", q), ("CHUNK", _access(problem, config)),
            ("SPLIT", int(tile_range.split_k > 1)), ("LANES", config.option("lanes")),
            (teams, config.option("teams")), (depth, config.option("depth")),
        ]  # fmt: skip
        program = gemm_program(problem, f"gpu/{name}.cl", defines)
        size, local = (tiles * _items(config), tile_range.split_k), (_items(config), 1)
        extra = (np.int32(k_range), sums.partial)
        return sums.behind(gemm_launch(problem, program, name, size, local, extra), device)


def _thin_rows(problem: GemmProblem) -> bool:
    """True: out has few rows, and B is the big operand. False: it has few columns, and A is."""
    return problem.m <= problem.n


def _along_k(problem: GemmProblem) -> bool:
    """Whether K is the big operand's contiguous axis."""
    return problem.trans_b if _thin_rows(problem) else not problem.trans_a


def _thin_side(problem: GemmProblem) -> int:
    """The thin side, rounded up to a size that is compiled: 1, 2, 4 or 8."""
    return 1 << (max(1, min(problem.m, problem.n)) - 1).bit_length()


def _items(config: TileConfig) -> int:
    return config.option("lanes") * config.option("teams")


def _big(problem: GemmProblem) -> tuple[str, bool, int]:
    """Type, conjugation and alignment of the big operand."""
    if _thin_rows(problem):
        return problem.b_type, problem.conj_b, problem.b_align
    return problem.a_type, problem.conj_a, problem.a_align


def _is_short(problem: GemmProblem) -> bool:
    """Whether the big operand's elements have 16 bits and are summed in 32."""
    return _big(problem)[0] in ("float16", "bfloat16") and problem.acc_type == "float32"


def _widest(problem: GemmProblem) -> int:
    """Elements of the widest access. 16-bit elements use half of it where the thin side is over 2, which
    needs many accumulators."""
    if _is_short(problem):
        return ACCESS // 2 if _thin_side(problem) <= 2 else ACCESS // 4
    return 1 if problem.acc_type in COMPLEX else ACCESS // problem.sums.nbytes


def _access(problem: GemmProblem, config: TileConfig) -> int:
    """Elements of an access to the big operand: ``vec`` where type and alignment allow it, else 1."""
    stored, conj, align = _big(problem)
    contiguous = problem.k if _along_k(problem) else max(problem.m, problem.n)
    whole = align % ACCESS == 0 and contiguous % config.vec == 0
    readable = _is_short(problem) or stored_as_summed(problem, stored)
    return config.vec if whole and not conj and readable else 1


def _shapes(problem: GemmProblem) -> tuple[tuple[int, int, int], ...]:
    """Lanes, teams and depth of the configurations. Many sums leave no registers for a depth over 4."""
    if problem.reproducible:
        return _DOT_IN_ORDER if _along_k(problem) else _WALK_IN_ORDER
    if _along_k(problem):
        return _DOT
    if _access(problem, TileConfig(vec=_widest(problem))) == 1:
        return _WALK_ELEMENTS
    return tuple(shape for shape in _WALK if shape[2] <= 4 or _thin_side(problem) <= 2)


def _tile(problem: GemmProblem, config: TileConfig) -> int:
    """The long side of a work-group's tile."""
    if _along_k(problem):
        return config.option("teams") * config.option("depth")
    return config.option("lanes") * _access(problem, config)


def _steps(problem: GemmProblem, config: TileConfig) -> int:
    """How many steps a work-group takes along K."""
    along = config.option("lanes") * _access(problem, config) if _along_k(problem) else config.option("teams")
    return problem.k // (along * config.option("depth"))


def _tiles(problem: GemmProblem, config: TileConfig) -> int:
    """Tiles along the long side, of all products of a stack together."""
    return max(1, -(-max(problem.m, problem.n) // _tile(problem, config)) * problem.batch)


def _split_k(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """The number of ranges of K, each of four steps or more. It is 1 where tiles fill the device, or nearly
    do, because adding partial sums takes another launch.
    """
    if config.split_k:
        return config.split_k
    tiles = _tiles(problem, config)
    wanted = 2 * device.units // tiles if 8 * tiles < 7 * device.units else 1
    wanted = max(1, min(wanted, _steps(problem, config) // 4))
    if _along_k(problem):
        return wanted
    return min((1, wanted), key=lambda split_k: _seconds(problem, config, split_k, device))


def _seconds(problem: GemmProblem, config: TileConfig, split_k: int, device: DeviceInfo) -> float:
    """Seconds from the start of the first launch to the end of the last: the reading model."""
    rates, unit, items, depth = device.rates, device.unit, _items(config), config.option("depth")
    elements, itemsize = _access(problem, config), ELEMENTS[_big(problem)[0]].nbytes
    access = elements * itemsize
    read = max(problem.m, problem.n) * problem.k * problem.batch  # elements of the big operand
    nbytes, groups = read * itemsize, max(1, _tiles(problem, config) * split_k)
    # 32-bit registers of a work-item: two sets of accesses, sums, addresses
    sums = _thin_side(problem) * elements * problem.sums.nbytes // 4
    registers = round_up(16 + 2 * depth * (access // 4) + sums, 8)
    resident = max(1, min(unit.registers // (items * registers), unit.work_items // items))
    each = nbytes / groups
    ahead = min(items * depth * access, each)
    rate = rates.cache if nbytes <= rates.cache_size else rates.memory

    def wave(count: int) -> float:
        """Seconds of *count* work-groups that run at the same time."""
        return count * each / rate * waiting_factor(device, max(1.0, ahead * count / device.units))

    slots = device.units * resident
    full, rest = divmod(groups, slots)
    reading = full * wave(slots) + wave(rest)
    narrow = 1 + _NARROW * max(0.0, _LINE / (config.option("lanes") * access) - 1)
    multiplying = _thin_side(problem) * read / (rates.multiply_adds(problem.acc_type) * _PRODUCTS)
    seconds = together(reading * narrow, multiplying)
    starts = 1 + (full + (rest > 0) - 1) / resident
    seconds += (_START + _START_ITEM * items) * rates.latency * starts
    seconds += rates.group * max(0, groups - slots)
    seconds = seconds * (ON_CPU if device.is_cpu else 1) + on_cpu(device, groups, items)
    return seconds + rates.launch + (rates.launch + _SUMS if split_k > 1 else 0)
