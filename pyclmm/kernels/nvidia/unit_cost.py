"""What the estimates for NVIDIA's matrix units share: their rates, packing, and kernels of one work-group a
tile.

Constants without a unit are fractions of ``Rates`` or counts of reads of global memory (``Rates.latency``).
They were fitted to products drawn at random on an H200 (docs/estimates.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ...problem.dtypes import dtype_of
from ...problem.gemm import GemmProblem
from ..config import TileConfig, slices
from ..cost import launched
from ..device import DeviceInfo
from .matrix_units import local_bytes

_PRODUCTS, _SMALL = (
    0.66,
    0.05,
)  # of the units' rate, of which mma.sync reaches two thirds; lost by small sub-groups
_LOCAL = 3.2  # of the rate of local memory: fragments
_FETCH, _COPY = (
    0.6,
    0.4e-9,
)  # of the cache's rate; seconds of a compute unit's time for each copy of a work-item
_WAIT, _STEP = 3.9, 0.1  # in a block of K: for its copies; barriers and fragments
_START, _START_COPY, _END, _END_SUM = 6.8, 0.2, 0.75, 0.045
_GROUP = 1.2e-07  # of a compute unit's time: the start and end of a work-group
_STORE = 0.65  # of the cache's rate
_PACK, _PACK_START = 0.34, 21.0  # of the rate of memory, written and read; besides an empty launch
_SPLIT, _SPLIT_START = 0.4, 33.0  # the same for the launch that splits operands into parts
_NARROW_STORE = 0.052  # writing memory in narrow stores: this times store_factor - 1 more
_PAIRS, _SINGLES = 4.1, 3.0  # storing fragments in pairs of elements, and singly, relative to 16 bytes
_SUMS, _SUMS_RATE = 7.7, 0.95  # the launch that adds partial sums; of the cache's rate


def pack_seconds(elements: int, nbytes: int, device: DeviceInfo) -> float:
    """Seconds of the launch that packs *elements* of *nbytes* bytes each; 0 if there are none."""
    rates = device.rates
    if not elements:
        return 0.0
    return rates.launch + _PACK_START * rates.latency + rates.moved(2 * elements * nbytes) / _PACK


def splitting_seconds(real: GemmProblem, device: DeviceInfo) -> float:
    """Seconds of the two launches that "high" takes besides its product: splitting the operands into parts,
    and a launch that returns at once.
    """
    rates = device.rates
    lines = 4 * (real.m + real.n) * real.k * real.batch  # bytes, read and written once
    return 2 * rates.launch + _SPLIT_START * rates.latency + rates.moved(2 * lines) / _SPLIT


def store_factor(problem: GemmProblem) -> float:
    """How much longer storing fragments takes where rows of out do not begin on multiples of 16 bytes."""
    pair = 2 * dtype_of(problem.out_type).itemsize
    if problem.out_align >= 16:
        return 1.0
    return _PAIRS if problem.out_align >= pair else _SINGLES


def moved_bytes(problem: GemmProblem) -> float:
    """The product's bytes, those of out counted more where they are stored in narrow accesses."""
    stored = problem.m * problem.n * problem.batch * dtype_of(problem.out_type).itemsize
    return problem.nbytes + (store_factor(problem) - 1) * _NARROW_STORE * stored


def sums_seconds(elements: float, split_k: int, nbytes: int, device: DeviceInfo) -> float:
    """Seconds that partial sums of *elements* results cost: storing them, and the launch that adds them."""
    if split_k == 1:
        return 0.0
    rates = device.rates
    return rates.launch + _SUMS * rates.latency + 2 * elements * split_k * nbytes / (rates.cache * _SUMS_RATE)


@dataclass(frozen=True)
class Ring:
    """A kernel of cl/nvidia/mma_ring.h: a work-group for each tile and range of K.

    ``nbytes`` of an element; ``parts`` how many products a multiply-add takes; ``chunks`` bytes of a copy of
    A and of B; ``slower`` the tile's factor, measured.
    """

    problem: GemmProblem
    config: TileConfig
    device: DeviceInfo
    nbytes: int
    parts: int = 1
    chunks: tuple[int, int] = (16, 16)
    slower: float = 1.0

    @property
    def _items(self) -> int:
        c = self.config
        return 32 * (c.bm // c.sgm) * (c.bn // c.sgn) * slices(c)

    @property
    def _resident(self) -> int:
        c = self.config
        sums = c.sgm * c.sgn // 32 * max(1, self.nbytes // 4)
        registers = min(255, 64 + sums + (c.sgm + c.sgn) * max(1, self.nbytes // 4) // 4)
        stage = (c.bm + c.bn) * c.bk * self.nbytes * (2 if self.parts > 1 else 1)
        return max(1, min(65536 // (registers * self._items), 2048 // self._items,
                          local_bytes(self.device) // (c.stages * stage)))  # fmt: skip

    def seconds(self) -> float:
        """Seconds of the launch, and of adding partial sums, without packing."""
        c, rates, units = self.config, self.device.rates, self.device.units
        problem, items = self.problem, self._items
        tiles = ceil(problem.m / c.bm) * ceil(problem.n / c.bn)
        steps = ceil(ceil(problem.k / c.bk) / c.split_k)
        rate = rates.matrix(self.nbytes) * _PRODUCTS / units
        products = c.bm * c.bn * c.bk * self.parts / rate * (1 + _SMALL * (32 / c.sgm + 32 / c.sgn))
        stage = tuple(side * c.bk * self.nbytes for side in (c.bm, c.bn))
        copies = sum(bytes_ / chunk for bytes_, chunk in zip(stage, self.chunks, strict=True)) / items
        fetched = sum(stage) * units / (rates.cache * _FETCH)
        read = (c.bm * (c.bn // c.sgn) + c.bn * (c.bm // c.sgm)) * c.bk * self.nbytes
        busy = max(products, fetched, read * units / (rates.local * _LOCAL), copies * items / 32 * _COPY)
        issued = products * max(1.0, 128 / items)
        alone = max(issued, _WAIT * rates.latency / (c.stages - 1)) + _STEP * rates.latency
        sums = c.bm * c.bn / items
        ends = _START + _START_COPY * copies * min(steps, c.stages - 1) + _END + _END_SUM * sums
        store = c.bm * c.bn * max(2, self.nbytes) * units / (rates.cache * _STORE) * store_factor(problem)
        seconds = launched(
            self.device, tiles * c.split_k * problem.batch, items, self._resident,
            steps * alone + ends * rates.latency, steps * busy + store + _GROUP,
            moved_bytes(problem),
        )  # fmt: skip
        padded = tiles * c.bm * c.bn * problem.batch
        seconds = rates.launch + self.slower * (seconds - rates.launch)
        return seconds + sums_seconds(padded, c.split_k, max(4, self.nbytes), self.device)
