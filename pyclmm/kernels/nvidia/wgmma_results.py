"""How results of `wgmma` leave the registers: as fragments, as lines, or while the next tile is multiplied,
and what that costs.
"""

from __future__ import annotations

from math import ceil

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from .matrix_units import LINE_ALIGN, Operands
from .unit_cost import NARROW_STORE, moved_bytes, store_factor
from .work_pieces import quartets

# Constants of the model, in reads of global memory (Rates.latency):
_STORE, _STORE_ELEMENT = 2.4, 0.00071  # the end of a tile; each element that a quartet stores
_FOUR_STORE_16 = 2.8  # as how many quartets four store results of 2 bytes; others as two
_CHUNK_BYTES = 64 * 256  # of local memory of a quartet, where results leave through it
# Option ``lines`` (cl/nvidia/wgmma_lines.h)
_LINES_LEAST = 16 << 10  # bytes of results for each compute unit; with fewer they leave as fragments
# The time relative to fragments of whole sectors: by the bytes of a result; of 2 bytes at odd multiples of 2.
# The ends of a line take as long as so many stores of 128 bytes.
_LINES, _LINES_ODD, _LINES_ENDS = {2: 1.0, 4: 1.5}, 3.0, 2.8
_LINES_MOVED = 0.28  # the same for writing memory, as NARROW_STORE of unit_cost.py
# Option ``drain`` (cl/nvidia/wgmma_drain.cl): tiles, with the factor by which each is slower; blocks of K:
# with fewer, the kernel stores from registers
DRAIN_TILES = {(128, 256): 1.0, (128, 192): 1.02}
_DRAIN_16_TILE = (128, 256)  # the one of which results of 2 bytes can
DRAIN_BLOCKS = {4: 9, 2: 2}  # by the bytes of a result
# What remains of the end of a tile; the same with A staged in registers. Besides: for elements of one byte,
# and of more
_DRAIN_LEFT, _DRAIN_LEFT_STAGED = 0.35, 0.7
_DRAIN_ONE_BYTE, _DRAIN_OTHERS = 0.93, 0.98
_DRAIN_16 = 1.02  # of results of 2 bytes


def worth_lines(problem: GemmProblem, device: DeviceInfo) -> bool:
    """Whether results should leave through local memory as lines: where fragments would write parts of the
    cache's sectors, if there are enough results to pay for the detour."""
    nbytes = problem.m * problem.n * problem.batch * ELEMENTS[problem.out_type].nbytes
    many = nbytes >= _LINES_LEAST * device.compute_units
    return many and problem.out_align < LINE_ALIGN and can_leave_as_lines(problem)


def can_leave_as_lines(problem: GemmProblem) -> bool:
    """Whether the kernel can be built so."""
    return ELEMENTS[problem.out_type].nbytes in (2, 4) and not problem.moduli


def behind_stages(config: TileConfig) -> int:
    """Bytes of local memory for results that leave."""
    return quartets(config) * _CHUNK_BYTES if config.option("drain") or config.option("lines") else 0


def can_drain(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether the kernel can be built so, for a product as it computes it."""
    tile, nbytes = (config.bm, config.bn), ELEMENTS[problem.out_type].nbytes
    if tile not in DRAIN_TILES or config.option("alternate") or config.split_k > 1:
        return False
    if problem.has_c or problem.moduli or problem.out_align < LINE_ALIGN:
        return False
    staged = Operands.of(problem).a_in_registers
    if nbytes == 2:
        pairs = ELEMENTS[problem.a_type].nbytes == 2
        return tile == _DRAIN_16_TILE and pairs and not config.option("swapped") and not staged
    return nbytes == 4 and problem.bias == "none" and (staged or not config.option("swapped"))


def _narrow(problem: GemmProblem, config: TileConfig) -> float:
    """How many times as long storing takes as in whole fragments."""
    if not config.option("lines"):
        return store_factor(problem)
    nbytes = ELEMENTS[problem.out_type].nbytes
    length, longest = (64, 64) if config.option("swapped") else (config.bn, 512 // nbytes)
    whole, ends = length * nbytes / 128, _LINES_ENDS * ceil(length / longest)
    return (_LINES_ODD if problem.out_align < 4 else _LINES[nbytes]) * (1 + ends / whole)


def store_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Seconds of the end of a tile."""
    elements = config.bm * config.bn / _storing(problem, config)
    stored = _STORE_ELEMENT * elements * _narrow(problem, config)
    return (_STORE + stored) * device.rates.latency


def _storing(problem: GemmProblem, config: TileConfig) -> float:
    """How many quartets' worth of a tile is stored at a time."""
    if config.option("alternate"):
        return 1.0
    count = quartets(config)
    if count < 4 or problem.moduli:  # those reduce their sums besides
        return count
    results_of_16_bits = ELEMENTS[problem.out_type].nbytes == 2 and config.split_k == 1
    return _FOUR_STORE_16 if results_of_16_bits else 2.0


def drained_seconds(problem: GemmProblem, config: TileConfig, waves: int, main: float, store: float) -> float:
    """Seconds of *waves* tiles, which would take *main* and then *store* each, if results are drained."""
    operands = Operands.of(problem)
    left = _DRAIN_LEFT_STAGED if operands.a_in_registers else _DRAIN_LEFT
    factor = _DRAIN_ONE_BYTE if operands.unit.nbytes == 1 else _DRAIN_OTHERS
    if ELEMENTS[problem.out_type].nbytes == 2:
        left, factor = _DRAIN_LEFT, _DRAIN_16
    factor *= DRAIN_TILES[config.bm, config.bn]
    return factor * (waves * main + max(0, waves - 1) * left * store + store)


def moved(problem: GemmProblem, config: TileConfig) -> float:
    """The product's bytes, those of results that are stored in parts of sectors more than once."""
    share = _LINES_MOVED if config.option("lines") else NARROW_STORE
    return moved_bytes(problem, _narrow(problem, config), share)
