"""What the estimates for NVIDIA's matrix units share: packing, partial sums, and kernels of one work-group
a tile.

Constants without a unit are fractions of ``Rates`` or counts of reads of global memory (``Rates.latency``).
They were fitted to products drawn at random on an H200 (docs/estimates.md).
"""

from __future__ import annotations

from math import ceil

from ...problem.dtypes import ELEMENTS, ElementType
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..cost import launched
from ..device import DeviceInfo
from ..interface import tiles_of
from .matrix_units import local_bytes
from .mma_ring import work_items

# Fraction of the units' rate that mma.sync reaches.
_PRODUCTS = {"bytes": 0.66, "halves": 0.72, "singles": 0.5, "doubles": 1.0}
_SMALL = 0.06  # time that small sub-groups add: this times 32 / SGM and 32 / SGN
_LOCAL = 0.7  # of the rate of local memory: fragments
# Of the cache's rate. Work-groups that read a line at the same time share it, with doubles most of all.
_FETCH = {"bytes": 0.76, "halves": 0.76, "singles": 0.76, "doubles": 1.1}
# A line of a block that does not begin on a sector of the cache reads one more; it costs as so many bytes.
_SECTOR_BYTES, _SECTOR = 32, 54.0
# Seconds of a compute unit's time for a copy of each work-item of a sub-group, of 4 bytes and of more
_COPY_4, _COPY = 5.0e-9, 2.4e-10
# In a block of K: for its copies; barriers and fragments.
_WAIT = 4.2
_STEP = 0.032
# The first copies, and each of them; the end of a work-group, and each sum of a work-item.
_START = 5.9
_START_COPY = 0.22
_END = 0.55
_END_SUM = 0.068
_GROUP = 1.9e-07  # seconds of a compute unit's time: the start and end of a work-group
_STORE = {"bytes": 0.68, "halves": 0.68, "singles": 0.68, "doubles": 2.6}  # of the cache's rate
# Storing fragments in pairs of elements, singly, and through local memory (cl/nvidia/mma.cl): time
# relative to 16 bytes at a time. The same for writing memory: 1 + NARROW_STORE times the factor less 1.
_PAIRS = 4.0
_SINGLES = 2.2
_SINGLES_16 = 9.0  # of 16 bits
_STAGED = 2.7
NARROW_STORE = 0.05
# The launches that pack operands and that split them into parts: of the rate of memory, written and read;
# besides an empty launch.
_PACK = {1: 0.55, 2: 0.34, 4: 0.34, 8: 0.8}  # by the bytes of an element
_PACK_START = 20.0
_SPLIT = 0.7
_SPLIT_START = 27.0
_SPLIT_LINE = 2.7e-07  # seconds of a compute unit's time for a row of A or a column of B, however short
# The launch that adds partial sums, besides its bytes; of the cache's rate.
_SUMS = 6.8
_SUMS_RATE = 0.8


def pack_seconds(elements: int, nbytes: int, device: DeviceInfo) -> float:
    """Seconds of the launch that packs *elements* of *nbytes* bytes each; 0 if there are none."""
    rates = device.rates
    if not elements:
        return 0.0
    moved = rates.moved(2 * elements * nbytes) / _PACK[nbytes]
    return rates.launch + _PACK_START * rates.latency + moved


def splitting_seconds(real: GemmProblem, device: DeviceInfo) -> float:
    """Seconds of the two launches that "high" takes besides its product: splitting the operands into parts,
    and a launch that returns at once.
    """
    rates = device.rates
    lines = (real.m + real.n) * real.batch
    moved = rates.moved(2 * 4 * lines * real.k) / _SPLIT
    return 2 * rates.launch + _SPLIT_START * rates.latency + max(moved, lines * _SPLIT_LINE / device.units)


def store_factor(problem: GemmProblem) -> float:
    """How much longer storing fragments takes where rows of out do not begin on multiples of 16 bytes."""
    nbytes = ELEMENTS[problem.out_type].nbytes
    if problem.out_align >= 16:
        return 1.0
    if problem.out_align >= 2 * nbytes:
        return _PAIRS
    return _SINGLES_16 if nbytes == 2 else _SINGLES


def moved_bytes(problem: GemmProblem, factor: float, share: float = NARROW_STORE) -> float:
    """The product's bytes. Those of out count more where stores take *factor* times as long."""
    stored = problem.m * problem.n * problem.batch * ELEMENTS[problem.out_type].nbytes
    return problem.nbytes + (factor - 1) * share * stored


def sums_seconds(elements: float, split_k: int, nbytes: int, device: DeviceInfo) -> float:
    """Seconds that partial sums of *elements* results cost: storing them, and the launch that adds them."""
    if split_k == 1:
        return 0.0
    rates = device.rates
    return rates.launch + _SUMS * rates.latency + 2 * elements * split_k * nbytes / (rates.cache * _SUMS_RATE)


def _fetched_bytes(problem: GemmProblem, config: TileConfig, element: ElementType) -> float:
    """Bytes that a block of A and of B takes from the cache, in whole sectors."""
    blocks = (
        (problem.a_align, problem.trans_a, config.bm),
        (problem.b_align, not problem.trans_b, config.bn),
    )
    fetched = 0.0
    for align, is_across, side in blocks:
        block, line = (x * element.nbytes for x in (side * config.bk, side if is_across else config.bk))
        fetched += block * (1 if align >= _SECTOR_BYTES else 1 + _SECTOR / line)
    return fetched


def _resident(config: TileConfig, device: DeviceInfo, element: ElementType, parts: int, items: int) -> int:
    """Work-groups of *items* work-items that a compute unit holds."""
    c, words = config, max(1, element.nbytes // 4)
    registers = min(255, 64 + c.sgm * c.sgn // 32 * words + (c.sgm + c.sgn) * words // 4)
    stage = (c.bm + c.bn) * c.bk * element.nbytes * (2 if parts > 1 else 1)
    by_local_memory = local_bytes(device) // (c.stages * stage)
    return max(1, min(65536 // (registers * items), 2048 // items, by_local_memory))


def ring_seconds(
    problem: GemmProblem,
    config: TileConfig,
    device: DeviceInfo,
    element: ElementType,
    parts: int = 1,
    chunks: tuple[int, int] = (16, 16),
    slower: float = 1.0,
    staged: bool = False,
) -> float:
    """Seconds of a kernel of cl/nvidia/mma_ring.h, with a work-group for each tile and range of K, and of
    adding partial sums; without packing.

    *element*: the type that is multiplied; *parts*: how many products a multiply-add takes; *chunks*: bytes
    of a copy of A and of B; *slower*: the tile's factor, measured; *staged*: results go through local memory.
    """
    c, rates, units, items = config, device.rates, device.units, work_items(config)
    tiles = tiles_of(problem, c.bm, c.bn)
    steps = ceil(ceil(problem.k / c.bk) / c.split_k)
    rate = rates.matrix(element.unit) * _PRODUCTS[element.unit] / units
    products = c.bm * c.bn * c.bk * parts / rate * (1 + _SMALL * (32 / c.sgm + 32 / c.sgn))
    stage = tuple(side * c.bk * element.nbytes for side in (c.bm, c.bn))
    copied = tuple(bytes_ / chunk for bytes_, chunk in zip(stage, chunks, strict=True))
    copies = sum(copied) / items
    copying = sum(
        n / 32 * (_COPY_4 if chunk == 4 else _COPY) for n, chunk in zip(copied, chunks, strict=True)
    )
    fetched = _fetched_bytes(problem, c, element) * units / (rates.cache * _FETCH[element.unit])
    read = (c.bm * (c.bn // c.sgn) + c.bn * (c.bm // c.sgm)) * c.bk * element.nbytes
    busy = max(products, fetched, read * units / (rates.local * _LOCAL), copying)
    issued = products * max(1.0, 128 / items)
    alone = max(issued, _WAIT * rates.latency / (c.stages - 1)) + _STEP * rates.latency
    sums = c.bm * c.bn / items
    ends = _START + _START_COPY * copies * min(steps, c.stages - 1) + _END + _END_SUM * sums
    narrow = _STAGED if staged else store_factor(problem)
    stored = c.bm * c.bn * max(2, element.nbytes) * units
    store = stored / (rates.cache * _STORE[element.unit]) * narrow
    seconds = launched(
        device, tiles * c.split_k * problem.batch, items, _resident(c, device, element, parts, items),
        steps * alone + ends * rates.latency, steps * busy + store + _GROUP,
        moved_bytes(problem, narrow),
    )  # fmt: skip
    padded = tiles * c.bm * c.bn * problem.batch
    seconds = rates.launch + slower * (seconds - rates.launch)
    return seconds + sums_seconds(padded, c.split_k, max(4, element.nbytes), device)
