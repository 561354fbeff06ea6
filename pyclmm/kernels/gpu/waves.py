"""How long a tiled product takes on a device, from arithmetic alone: the choice without tuning.

A work-group of the `register` family computes a BM x BN tile of out in K / BK steps. What it costs is
counted in cycles of one compute unit:

    step     the largest of: products BM BN BK / (fused multiply-adds a cycle),
                             reads of local memory, (TM + TN) elements a work-item and k,
                             reads of global memory, (BM + BN) BK elements
    group    start + steps * step + store, where other work-groups on the unit hide the start
    rest     tiles that do not fill the device once more take a whole round all the same, unless K is cut
             into ranges for them; then each range's sums are written, and another launch adds them

Everything here is a pure function of plain data. The constants are NVIDIA H200 measurements where one
is named (docs/kernels/register.md), and datasheet figures elsewhere: they rank, they do not promise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ...problem.dtypes import dtype_of
from ...problem.gemm import GemmProblem
from ..config import TileConfig, slices
from ..device import DeviceInfo
from ..split_k import Part
from .tile import is_held, local_bytes, sides, work_items

_SPLIT_K = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
_FETCH = 24.0  # bytes a cycle and unit from the last cache, in wide accesses: 5 TB/s on an H200
_FETCH_ELEMENTS = 14.0  # the same, an element at a time
_HIDDEN = 0.12  # of what the slowest of the three hides, is seen all the same
_HELD = 1.15  # tiles through registers: loads, conversions and stores are the work-items' own
_NARROW = 2.0  # reads of local memory an element at a time, against 16 bytes
# Copies of B late in a step suit a B that is transposed on its way, and hurt where alignment forces many.
_UNSUITED = 1.02
_TRANSPOSED_ALONE = 1.05  # float64, A alone transposed, one work-group a unit: 24.6 TFLOP/s against 25.8
_START = 2000  # cycles until a work-group's first tile is there
_STORE = 10.0  # bytes of out a cycle and unit, where a work-item's columns lie in chunks
_STORE_LINES = 24.0  # the same, where neighbouring work-items store neighbouring columns
_STORE_HIDDEN = 0.5  # of a store that another work-group on the unit computes under
_EXCHANGE = 100, 6  # cycles for the slices' sums: a column of a work-item's, an element of it and slice
_LAUNCH = 7000  # cycles that another launch costs: 4 us at 1.8 GHz
_LATENCY = 160  # work-items that keep a unit busy
_LATENCY_ROOT = 0.25  # with fewer, its time grows with this power of what lacks


def units(device: DeviceInfo) -> int:
    """How many compute units it has, as :class:`~pyclmm.kernels.device.ComputeUnit` counts them."""
    return max(1, device.compute_units // device.unit.counted)


def registers(config: TileConfig, itemsize: int) -> int:
    """32-bit registers a work-item, about: sums, two sets of fragments, addresses."""
    words = max(1, itemsize // 4)
    return (config.tm * config.tn + 2 * (config.tm + config.tn)) * words + 32


def resident(config: TileConfig, itemsize: int, device: DeviceInfo) -> int:
    """Work-groups that a unit holds at a time; 0 where registers spill."""
    unit = device.unit
    items = work_items(config)
    if registers(config, itemsize) > unit.item_registers:
        return 0
    return min(
        unit.registers // (items * registers(config, itemsize)),
        device.static_local_bytes // local_bytes(config, itemsize),
        unit.work_items // items,
    )


def step_cycles(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Cycles of one BK step of one work-group that has a unit to itself."""
    itemsize = dtype_of(problem.acc_type).itemsize
    per_product = {"float64": 2, "complex64": 4, "complex128": 8, "uint32": 2, "uint64": 8}
    products = config.bm * config.bn * config.bk * per_product.get(problem.acc_type, 1) / device.unit.fma
    readers = (config.bm // config.tm) * (config.bn // config.tn) / 32
    local = readers * config.bk * (config.tm + config.tn) * itemsize / 4
    if config.vec * itemsize < 8:
        local *= _NARROW
    operands = sides(problem, config)
    fetched = sum(
        side.width * config.bk * itemsize / (_FETCH if side.vec > 1 else _FETCH_ELEMENTS) for side in operands
    )
    slowest = max(products, local, fetched)
    cycles = slowest + _HIDDEN * (products + local + fetched - slowest)
    if is_held(config):
        return cycles * _HELD
    late = config.option("fetch_b", 1) > 1
    a, b = operands
    if itemsize == 8 and a.across and b.vec > 1 and not b.across and resident(config, itemsize, device) == 1:
        cycles *= _TRANSPOSED_ALONE
    if any(side.vec == 1 and not side.across for side in operands):
        return cycles * (_UNSUITED if late else 1)
    return cycles * (_UNSUITED if operands[1].across and not late else 1)


def store_cycles(config: TileConfig, itemsize: int) -> float:
    """Cycles that a unit takes to store a tile of out."""
    return config.bm * config.bn * itemsize / (_STORE_LINES if config.vec == 1 else _STORE)


def start_cycles(config: TileConfig) -> float:
    """Cycles of a work-group that others on the same unit can hide: the first tile, the slices' sums."""
    column, element = _EXCHANGE
    others = slices(config) - 1
    return _START + (config.tn * (column + element * others * config.tm) if others else 0)


@dataclass(frozen=True)
class Tiling:
    """A problem cut into a configuration's tiles, on a device."""

    problem: GemmProblem
    config: TileConfig
    device: DeviceInfo

    @property
    def tiles(self) -> int:
        """Tiles of one product."""
        return -(-self.problem.m // self.config.bm) * -(-self.problem.n // self.config.bn)

    @property
    def itemsize(self) -> int:
        return dtype_of(self.problem.acc_type).itemsize

    def k_range(self, split_k: int) -> int:
        """K of one of *split_k* ranges, whole steps; the last one may be shorter."""
        steps = -(-self.problem.k // self.config.bk)
        return -(-steps // split_k) * self.config.bk

    def whole(self, split_k: int) -> int:
        """*split_k*, or as many ranges as are left when each has a whole number of steps."""
        return max(1, -(-self.problem.k // self.k_range(split_k))) if self.problem.k else 1

    def cycles(self, parts: tuple[Part, ...]) -> float:
        """Cycles from the first launch's start to the last one's end."""
        unit = self.device.unit
        moved = self.problem.nbytes + sum(self._partial_bytes(p) for p in parts)
        streamed = moved / (units(self.device) * unit.stream)
        return max(streamed, sum(self._launch_cycles(p) for p in parts)) + _LAUNCH * (len(parts) - 1)

    def _partial_bytes(self, part: Part) -> int:
        if part.split_k == 1:
            return 0
        elements = self.config.bm * self.config.bn * part.tiles * self.problem.batch
        return 2 * elements * part.split_k * self.itemsize

    def _launch_cycles(self, part: Part) -> float:
        held = max(1, resident(self.config, self.itemsize, self.device))
        groups = part.tiles * part.split_k * self.problem.batch
        rounds = max(1, -(-groups // units(self.device)))
        steps = self.k_range(part.split_k) // self.config.bk
        step = step_cycles(self.problem, self.config, self.device)
        lack: float = _LATENCY / (work_items(self.config) * min(held, rounds))
        step *= math.pow(max(1.0, lack), _LATENCY_ROOT)
        store = store_cycles(self.config, self.itemsize)
        if held > 1 and rounds > 1:
            store = max(store * _STORE_HIDDEN, store - steps * step)
        total = rounds * (steps * step + store) + start_cycles(self.config) * -(-rounds // held)
        if part.split_k > 1:
            total += _LAUNCH + self._partial_bytes(part) / (units(self.device) * _FETCH)
        return total

    def parts(self) -> tuple[Part, ...]:
        """The launches that the product takes, the fastest by this count."""
        if self.config.split_k > 0:
            return (Part(0, self.tiles, self.whole(self.config.split_k)),)
        return min(self._ways(), key=self.cycles)

    def _ways(self) -> Iterator[tuple[Part, ...]]:
        """Everything at once; with split-K; or whole rounds, and split-K for the rest."""
        yield (Part(0, self.tiles),)
        slots = units(self.device) * max(1, resident(self.config, self.itemsize, self.device))
        whole_rounds = self.tiles // slots * slots if self.problem.batch == 1 else 0
        rest = self.tiles - whole_rounds
        groups = max(1, rest * self.problem.batch)
        full_rounds = (units(self.device) // groups, slots // groups, 2 * slots // groups)
        wanted = {s for s in _SPLIT_K if s <= full_rounds[2]} | set(full_rounds)
        for split_k in sorted({self.whole(s) for s in wanted if s > 1}):
            if rest and split_k > 1:
                full = (Part(0, whole_rounds),) if whole_rounds else ()
                yield (*full, Part(whole_rounds, rest, split_k))
