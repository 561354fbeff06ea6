"""Estimates how long a tiled product takes on a device.

A work-group of the `register` family computes a BM x BN tile of out in K / BK steps. Two times are estimated,
and cost.py puts them together:

    busy    the compute unit's time that a work-group takes: in each step the longest of
                products BM BN BK, reads of local memory (TM + TN elements for each work-item and k),
                reads of global memory (BM + BN) BK
            and the store of the tile
    alone   the time from a work-group's start to its end when nothing else runs: its first loads, in each
            step the wait for memory that is not hidden, its last stores

With split-K, each range's partial sums are written, and another launch adds them. Everything here is a pure
function of plain data. The constants were fitted to products drawn at random on an NVIDIA H200
(benchmarks/estimates.py, docs/estimates.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ...problem.gemm import GemmProblem
from ..config import TileConfig, slices
from ..cost import ON_CPU, launched
from ..device import DeviceInfo
from ..interface import tiles_of
from ..split_k import TileRange
from .tile import (
    Side,
    by_rows,
    in_vectors,
    is_held,
    local_bytes,
    side_by_side,
    sides,
    stored_as_summed,
    work_items,
)

_SPLIT_K = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
# Fractions of the rates that the kernels reach.
_PRODUCTS = 1.0
_FETCH = 0.81
# Above 1, because work-items that read the same elements of local memory at the same time share the access.
_LOCAL = 2.0
# Times relative to reading 16 bytes at a time: global memory one element at a time, and elements that are
# converted while they are read; local memory one element at a time.
_ELEMENTS = 1.4
_CONVERTED = 2.7
_NARROW = 3.1
_NOT_HIDDEN = 0.061  # fraction of the overlapped time of a step that is not hidden
_HELD = 1.24  # time of a step where work-items load, convert and store each element themselves
_BY_ROWS = 0.8  # time of a step with option rows
# Copies of B late in a step suit a B that is transposed while it is copied, but hurt where bad alignment
# forces many small copies.
_UNSUITED = 1.02
# The store, as a fraction of the cache's rate: by columns in chunks, and by rows.
_STORE = 0.38
_STORE_LINES = 1.13
_UNALIGNED = 1.2  # time of a store in chunks where rows of out begin on no multiple of 16 bytes
_SIDE_BY_SIDE = 1.4  # in place of ON_CPU where vectors are of neighbouring columns: Intel's runtime, Zen 4
_GROUP = 5.0e-07  # seconds of a compute unit's time: the start and end of a work-group
# Parts of ``alone``, in reads of global memory (Rates.latency).
_START = 0.28  # until the first loads are issued
_START_COPY = 0.00024  # each 16 bytes that a work-item copies for them
_END = 0.077  # the store
_END_SUM = 0.35  # each sum of a work-item
_EXCHANGE = 0.28  # adding slices: each sum of a work-item and slice
_EXCHANGE_ROWS = 0.13  # the same with option rows, where sums meet in local memory
_WAIT = 0.65  # in a step, for asynchronous copies of one stage
_WAIT_HELD = 2.8  # the same for loads into registers
_STEP = 1.55  # barriers of a step
_ISSUE = 0.29  # a step's products when few sub-groups share a compute unit, relative to the full rate
# The launch that adds partial sums, besides its bytes: in reads of global memory; a fraction of the cache's
# rate.
_SUMS = 14.0
_SUMS_RATE = 0.76


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


@dataclass(frozen=True)
class Tiling:
    """A problem cut into a configuration's tiles, on a device."""

    problem: GemmProblem
    config: TileConfig
    device: DeviceInfo

    @cached_property
    def tiles(self) -> int:
        """Tiles of one product."""
        return tiles_of(self.problem, self.config.bm, self.config.bn)

    @cached_property
    def itemsize(self) -> int:
        return self.problem.sums.nbytes

    def k_range(self, split_k: int) -> int:
        """Elements of K in each of *split_k* ranges: whole steps. The last range may be shorter."""
        return -(-self._steps // split_k) * self.config.bk

    @cached_property
    def _steps(self) -> int:
        return -(-self.problem.k // self.config.bk)

    def _whole(self, wanted: Iterable[int]) -> list[int]:
        """How many of so many ranges are not empty when each has a whole number of steps."""
        steps = self._steps
        return [-(-steps // -(-steps // split_k)) if steps else 1 for split_k in wanted]

    def seconds(self, ranges: tuple[TileRange, ...]) -> float:
        """Seconds from the start of the first launch to the end of the last."""
        return sum([self._launch_seconds(r) for r in ranges])

    @cached_property
    def _resident(self) -> int:
        return max(1, resident(self.config, self.itemsize, self.device))

    @cached_property
    def _products(self) -> float:
        """Seconds of a step's multiply-adds on a compute unit."""
        c, rate = self.config, self.device.rates.multiply_adds(self.problem.acc_type)
        return c.bm * c.bn * c.bk * self.device.units / (rate * _PRODUCTS)

    @cached_property
    def _busy_step(self) -> float:
        """Seconds of a compute unit's time that a step takes."""
        c, rates, units = self.config, self.device.rates, self.device.units
        read = work_items(c) // slices(c) * c.bk * (c.tm + c.tn) * self.itemsize
        local = read * units / (rates.local * _LOCAL) * (_NARROW if c.vec * self.itemsize < 8 else 1)
        stored = (self.problem.a_type, self.problem.b_type)
        fetched = sum(
            side.width * c.bk * self.itemsize * units / (rates.cache * _FETCH)
            * (1 if side.vec > 1 else _ELEMENTS)
            * (1 if stored_as_summed(self.problem, kind) else _CONVERTED)
            for side, kind in zip(self._sides, stored, strict=True)
        )  # fmt: skip
        slowest = max(self._products, local, fetched)
        seconds = slowest + _NOT_HIDDEN * (self._products + local + fetched - slowest)
        if by_rows(c):
            return seconds * _BY_ROWS
        return seconds * (_HELD if is_held(c) else self._unsuited)

    @cached_property
    def _sides(self) -> tuple[Side, Side]:
        return sides(self.problem, self.config)

    @cached_property
    def _unsuited(self) -> float:
        late = self.config.option("fetch_b", 1) > 1
        a, b = self._sides
        if (a.vec == 1 and not a.across) or (b.vec == 1 and not b.across):
            return _UNSUITED if late else 1
        return _UNSUITED if b.across and not late else 1

    @cached_property
    def _alone_step(self) -> float:
        """Seconds of a step of a work-group that has a compute unit for itself."""
        c, latency = self.config, self.device.rates.latency
        issued = self._products * max(1.0, 128 / work_items(c)) * _ISSUE  # 4 sub-groups issue at a time
        wait = latency * (_WAIT_HELD if is_held(c) else _WAIT / self._ahead)
        return max(issued, wait) + _STEP * latency

    @cached_property
    def _items(self) -> int:
        return work_items(self.config)

    @cached_property
    def _vectors(self) -> float:
        """How a CPU's compiler gets on with the work-items (cost.py)."""
        c = self.config
        in_place = in_vectors(c) and c.vec == 1 and side_by_side(c) >= self.device.vector_items
        return _SIDE_BY_SIDE if in_place else ON_CPU

    @cached_property
    def _end(self) -> float:
        """The end of a work-group, in reads of global memory: adding slices, storing its sums."""
        sums, exchange = self.config.bm * self.config.bn / self._items, _EXCHANGE
        if by_rows(self.config):
            exchange = _EXCHANGE_ROWS
        return _END + (_END_SUM * self._unaligned + exchange * (slices(self.config) - 1)) * sums

    @cached_property
    def _in_chunks(self) -> bool:
        """Whether sums are stored 16 bytes at a time."""
        return self.config.vec > 1 and not by_rows(self.config)

    @cached_property
    def _unaligned(self) -> float:
        return _UNALIGNED if self._in_chunks and self.problem.out_align < 16 else 1.0

    @cached_property
    def _busy_ends(self) -> float:
        """Seconds of a compute unit's time that the start and the end of a work-group take."""
        c, store = self.config, _STORE if self._in_chunks else _STORE_LINES
        rate = self.device.rates.cache * store / (self.device.units * self._unaligned)
        return _GROUP + c.bm * c.bn * self.itemsize / rate

    @cached_property
    def _ahead(self) -> int:
        """Steps whose tiles are loaded ahead."""
        return 1 if is_held(self.config) else self.config.stages - 1

    def _launch_seconds(self, tile_range: TileRange) -> float:
        c, steps = self.config, -(-self._steps // tile_range.split_k)
        copied = c.bk * (c.bm + c.bn) * self.itemsize / 16 / self._items  # 16 bytes at a time, for a step
        start = _START + _START_COPY * min(self._ahead, steps) * copied
        alone = steps * self._alone_step + (start + self._end) * self.device.rates.latency
        busy = steps * self._busy_step + self._busy_ends
        groups = tile_range.tiles * tile_range.split_k * self.problem.batch
        nbytes = self.problem.nbytes * tile_range.tiles / max(1, self.tiles)
        cpu = self._vectors
        seconds = launched(self.device, groups, self._items, self._resident, alone, busy, nbytes, cpu)
        return seconds if tile_range.split_k == 1 else seconds + self._sums_seconds(tile_range)

    def _sums_seconds(self, tile_range: TileRange) -> float:
        """Seconds that partial sums cost: storing them, and the launch that adds them."""
        elements = self.config.bm * self.config.bn * tile_range.tiles * self.problem.batch
        nbytes = 2 * elements * tile_range.split_k * self.itemsize
        rates = self.device.rates
        return rates.launch + _SUMS * rates.latency + nbytes / (rates.cache * _SUMS_RATE)

    def tile_ranges(self) -> tuple[TileRange, ...]:
        """The tiles of each launch, for the fastest way by this estimate."""
        if self.config.split_k > 0:
            return (TileRange(0, self.tiles, *self._whole((self.config.split_k,))),)
        return min(self._ways(), key=self.seconds)

    def _ways(self) -> Iterator[tuple[TileRange, ...]]:
        """All tiles in one launch; all with split-K; or full waves in one launch and the others split-K."""
        yield (TileRange(0, self.tiles),)
        units = self.device.units
        slots = units * self._resident
        full_waves = self.tiles // slots * slots if self.problem.batch == 1 else 0
        rest = self.tiles - full_waves
        groups = max(1, rest * self.problem.batch)
        fills = (units // groups, slots // groups, 2 * slots // groups)
        wanted = {s for s in _SPLIT_K if s <= fills[2]} | set(fills)
        for split_k in sorted({*self._whole([s for s in wanted if s > 1])}):
            if rest and split_k > 1:
                full = (TileRange(0, full_waves),) if full_waves else ()
                yield (*full, TileRange(full_waves, rest, split_k))
