"""Estimates how long a tiled product takes on a device. The estimate chooses a configuration without tuning.

A work-group of the `register` family computes a BM x BN tile of out in K / BK steps. The estimate counts
cycles of one compute unit:

    step       the largest of: products BM BN BK / (fused multiply-adds per cycle),
                               reads of local memory, (TM + TN) elements for each work-item and k,
                               reads of global memory, (BM + BN) BK elements
    group      start + steps * step + store; other work-groups on the compute unit hide the start
    last wave  takes as long as a full one even if it has few tiles, unless split-K is used for them. Then
               each range's partial sums are written, and another launch adds them

Everything here is a pure function of plain data. The constants are measurements on an NVIDIA H200 where it is
named (docs/kernels/register.md), and datasheet figures elsewhere. They serve to rank configurations, not to
predict times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ...problem.dtypes import dtype_of
from ...problem.gemm import GemmProblem
from ..config import TileConfig, slices
from ..device import DeviceInfo
from ..split_k import TileRange
from .tile import is_held, local_bytes, sides, work_items

_SPLIT_K = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
_FETCH = 24.0  # bytes per cycle and compute unit from the last-level cache, wide accesses: 5 TB/s on an H200
_FETCH_ELEMENTS = 14.0  # the same with accesses of one element
_NOT_HIDDEN = 0.12  # fraction of the overlapped time that is not hidden
_HELD = 1.15  # staging in registers is slower: work-items load, convert and store each element themselves
_NARROW = 2.0  # time of reading local memory one element at a time, relative to 16 bytes at a time
# Copies of B late in a step suit a B that is transposed while it is copied, but hurt where bad alignment
# forces many small copies.
_UNSUITED = 1.02
_TRANSPOSED_ALONE = 1.05  # float64, only A transposed, one work-group per unit: 24.6 TFLOP/s, not 25.8
_START = 2000  # cycles until a work-group's first tile is there
_STORE = 10.0  # bytes of out per cycle and compute unit; each work-item stores chunks of columns
_STORE_LINES = 24.0  # the same, where neighbouring work-items store neighbouring columns
_STORE_NOT_HIDDEN = 0.5  # at least this fraction of a store is not hidden by other work-groups
_EXCHANGE = 100, 6  # cycles to add slices: for each column of a work-item; for each element of it and slice
_LAUNCH = 7000  # cycles that another launch costs: 4 us at 1.8 GHz
_LATENCY = 160  # work-items that keep a compute unit busy
_LATENCY_ROOT = 0.25  # with fewer, the time grows with this power of the ratio


def units(device: DeviceInfo) -> int:
    """The device's compute units, as :class:`~pyclmm.kernels.device.ComputeUnit` counts them."""
    return max(1, device.compute_units // device.unit.counted)


def registers(config: TileConfig, itemsize: int) -> int:
    """About how many 32-bit registers a work-item needs: sums, two sets of fragments, addresses."""
    words = max(1, itemsize // 4)
    return (config.tm * config.tn + 2 * (config.tm + config.tn)) * words + 32


def resident(config: TileConfig, itemsize: int, device: DeviceInfo) -> int:
    """Work-groups that a compute unit holds at the same time. 0 where registers spill."""
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
    """Cycles of one BK step of a work-group that is alone on a compute unit."""
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
    cycles = slowest + _NOT_HIDDEN * (products + local + fetched - slowest)
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
    """Cycles that a compute unit takes to store a tile of out."""
    return config.bm * config.bn * itemsize / (_STORE_LINES if config.vec == 1 else _STORE)


def start_cycles(config: TileConfig) -> float:
    """Cycles that other work-groups on the compute unit can hide: loading the first tile, adding slices."""
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
        """Elements of K in each of *split_k* ranges: whole steps. The last range may be shorter."""
        steps = -(-self.problem.k // self.config.bk)
        return -(-steps // split_k) * self.config.bk

    def whole(self, split_k: int) -> int:
        """How many of *split_k* ranges are not empty when each has a whole number of steps."""
        return max(1, -(-self.problem.k // self.k_range(split_k))) if self.problem.k else 1

    def cycles(self, ranges: tuple[TileRange, ...]) -> float:
        """Cycles from the start of the first launch to the end of the last."""
        unit = self.device.unit
        moved = self.problem.nbytes + sum(self._partial_bytes(r) for r in ranges)
        streamed = moved / (units(self.device) * unit.stream)
        return max(streamed, sum(self._launch_cycles(r) for r in ranges)) + _LAUNCH * (len(ranges) - 1)

    def _partial_bytes(self, tile_range: TileRange) -> int:
        if tile_range.split_k == 1:
            return 0
        elements = self.config.bm * self.config.bn * tile_range.tiles * self.problem.batch
        return 2 * elements * tile_range.split_k * self.itemsize

    def _launch_cycles(self, tile_range: TileRange) -> float:
        held = max(1, resident(self.config, self.itemsize, self.device))
        groups = tile_range.tiles * tile_range.split_k * self.problem.batch
        waves = max(1, -(-groups // units(self.device)))
        steps = self.k_range(tile_range.split_k) // self.config.bk
        step = step_cycles(self.problem, self.config, self.device)
        lack: float = _LATENCY / (work_items(self.config) * min(held, waves))
        step *= math.pow(max(1.0, lack), _LATENCY_ROOT)
        store = store_cycles(self.config, self.itemsize)
        if held > 1 and waves > 1:
            store = max(store * _STORE_NOT_HIDDEN, store - steps * step)
        total = waves * (steps * step + store) + start_cycles(self.config) * -(-waves // held)
        if tile_range.split_k > 1:
            total += _LAUNCH + self._partial_bytes(tile_range) / (units(self.device) * _FETCH)
        return total

    def tile_ranges(self) -> tuple[TileRange, ...]:
        """The tiles of each launch, for the fastest way by this estimate."""
        if self.config.split_k > 0:
            return (TileRange(0, self.tiles, self.whole(self.config.split_k)),)
        return min(self._ways(), key=self.cycles)

    def _ways(self) -> Iterator[tuple[TileRange, ...]]:
        """All tiles in one launch; all with split-K; or full waves in one launch and the others split-K."""
        yield (TileRange(0, self.tiles),)
        slots = units(self.device) * max(1, resident(self.config, self.itemsize, self.device))
        full_waves = self.tiles // slots * slots if self.problem.batch == 1 else 0
        rest = self.tiles - full_waves
        groups = max(1, rest * self.problem.batch)
        fills = (units(self.device) // groups, slots // groups, 2 * slots // groups)
        wanted = {s for s in _SPLIT_K if s <= fills[2]} | set(fills)
        for split_k in sorted({self.whole(s) for s in wanted if s > 1}):
            if rest and split_k > 1:
                full = (TileRange(0, full_waves),) if full_waves else ()
                yield (*full, TileRange(full_waves, rest, split_k))
