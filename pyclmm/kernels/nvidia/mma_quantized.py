"""`mma_quantized`: few rows of 16-bit floats by quantised weights, on matrix units of NVIDIA's sm_80 and up.

The limits of its estimate, for each compute unit: weights come at the memory's rate; a block of rows is read
from the cache by every work-group; a weight takes instructions until it is a 16-bit number; mma.sync
multiplies (docs/quantised_kernels.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..cost import together, waiting_factor
from ..device import DeviceInfo
from ..interface import tiles_of
from ..weights import RUN, format_of
from .matrix_units import local_bytes
from .quantized_units import DEPTH, QuantizedUnits, is_fused, weight_bits

# BN, SGN, slices of a work-group, stages, steps that weights are loaded ahead
_TILES = (
    (256, 32, 2, 2, 1), (128, 32, 4, 2, 1), (128, 32, 2, 2, 2), (128, 32, 2, 3, 2), (64, 32, 4, 2, 2),
    (256, 32, 1, 3, 2), (128, 32, 1, 3, 2), (128, 16, 2, 2, 2), (128, 16, 2, 2, 3), (128, 16, 1, 3, 2),
    (64, 16, 2, 3, 2), (64, 16, 4, 2, 2), (64, 16, 4, 2, 3), (32, 16, 4, 2, 2),
)  # fmt: skip
# Not measured: instructions for a weight, where 16-bit arithmetic gives it and elsewhere; those of a
# multiplication of 16 x 8 x 16, with its part of A. Fractions of the rates of issue, units and cache.
_FUSED, _TURNED, _FORMAT = 2.4, 4.2, 10.0
_ISSUED = 1.4
_ISSUE, _PRODUCTS, _FETCH = 0.75, 0.55, 0.76
# Reads of global memory: until the first weights arrive and for the end; a step; sums of ranges
_START, _STEP, _RANGES = 14.0, 0.5, 8.0
# Measured times over what this model gives: 1.9 to 2.9 on an H200 with 4 bits, 1.3 to 1.9 with 8
_OVER = 2.2
_REGISTERS = 64  # of a work-item, besides those for weights that come and for sums
# Of these, in work-groups of up to 256 work-items, and of more: with more registers ptxas spills
_MOST_HELD, _MOST_HELD_MANY = 128, 56


class MmaQuantized(QuantizedUnits):
    """See cl/nvidia/mma_quantized.cl. BM x BN is a work-group's tile of out, SGN columns of it a sub-group's,
    BK its slices of 128. SPLIT_K is the number of ranges of K. Option ``ahead``: how many steps weights are
    loaded ahead.
    """

    name = "mma_quantized"
    unit = "mma"
    summary = "few rows by quantised weights on matrix units of sm_80 and later (mma.sync)"
    options = ("ahead",)
    rows = (8, 16, 32, 64)

    def offered(self, problem: GemmProblem, bm: int, device: DeviceInfo) -> Iterator[TileConfig]:
        for bn, sgn, slices, stages, ahead in _TILES:
            bk, options = slices * DEPTH, {"ahead": ahead}
            for ranges in self.ranges(problem, bm, bn, bk, device):
                yield TileConfig(bm, bn, bk, sgn=sgn, stages=stages, split_k=ranges, options=options)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        c, ahead = config, config.option("ahead", 1)
        if c.bm not in self.rows or c.sgn not in (16, 32) or c.bn % c.sgn or c.bk % DEPTH or c.split_k < 1:
            return [
                f"bm is one of {self.rows}, sgn 16 or 32 and divides bn, bk a multiple of {DEPTH}: {config}"
            ]
        if c.stages < 2 or not 1 <= ahead <= 4:
            return [f"stages must be 2 or more, ahead 1 to 4: {config}"]
        if _held(problem, c) > (_MOST_HELD if self.items(c) <= 256 else _MOST_HELD_MANY):
            return [f"weights and sums of so many columns take too many registers: {config}"]
        needed = max(c.stages * c.bm * c.bk * 2, c.bk // DEPTH * c.bm * (c.bn + 4) * 4) + 16
        return config.violations(device, (self.items(config),), needed, local_bytes(device))

    def items(self, config: TileConfig) -> int:
        return 32 * (config.bn // config.sgn) * (config.bk // DEPTH)

    def sizes(self, problem: GemmProblem, config: TileConfig) -> tuple[tuple[str, int], ...]:
        c = config
        return (
            *(("BM", c.bm), ("BN", c.bn), ("TEAMS", c.bn // c.sgn), ("SGN", c.sgn)),
            *(("SLICES", c.bk // DEPTH), ("STAGES", c.stages), ("AHEAD", c.option("ahead", 1))),
        )

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        rates, units, c = device.rates, device.units, config
        groups = tiles_of(problem, c.bm, c.bn) * problem.batch * c.split_k
        items = self.items(c)
        registers = (_REGISTERS + _held(problem, c)) * items
        by_local_memory = local_bytes(device) // (c.stages * c.bm * c.bk * 2)
        resident = max(1, min(device.unit.registers // registers, by_local_memory))  # on a compute unit
        share, rounds = ceil(groups / units), ceil(groups / (units * resident))
        steps = ceil(problem.k / c.split_k / c.bk)
        waits = _START + steps * _STEP + (_RANGES + c.split_k if c.split_k > 1 else 0)
        alone = rounds * waits * rates.latency
        run = RUN * format_of(problem).bits / 8  # bytes
        ahead = c.option("ahead", 1) * run * (c.sgn // 8) * items * min(resident, groups / units)
        full = max(0.5, groups / (share * units))  # of the units, while the last work-groups run
        reading = rates.moved(problem.nbytes) * waiting_factor(device, ahead) / full
        seconds = alone / 2 + together(alone, share * _busy(problem, c, device), reading)
        return rates.launch + _OVER * seconds


def _held(problem: GemmProblem, config: TileConfig) -> int:
    """Registers of a work-item for weights, which come or are turned into numbers, and for sums."""
    bits = weight_bits(problem)
    run = config.option("ahead", 1) * (bits + 3) if bits else RUN // 2
    return config.sgn // 8 * run + config.bm * config.sgn // 32


def _busy(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Seconds of a compute unit's time that a work-group takes."""
    rates, units, c = device.rates, device.units, config
    depth = problem.k / c.split_k
    turned = _FORMAT if not weight_bits(problem) else _FUSED if is_fused(problem) else _TURNED
    products = c.bm * c.bn * depth
    issued = c.bn * depth * turned + products / 128 * _ISSUED * 48 / (c.sgn + 16)
    fetched = c.bm * depth * 2 + c.bn * format_of(problem).row_nbytes(problem.k) / c.split_k
    return units * max(
        issued / (rates.float32 * _ISSUE),
        products / (rates.matrix("halves") * _PRODUCTS),
        fetched / (rates.cache * _FETCH),
    )
