"""`wgmma_quantized`: few rows of 16-bit floats by affine weights, on matrix units of NVIDIA's sm_90a.

The limits of its estimate are those of `mma_quantized`, measured on an H200 (docs/quantised_kernels.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..cost import waiting_factor
from ..device import DeviceInfo
from ..interface import Workspace, round_up, tiles_of
from ..weights import format_of
from .matrix_units import MAP_BYTES, local_bytes
from .quantized_units import DEPTH, QuantizedUnits, is_fused, weight_bits

# BN, slices of a work-group, steps that are in local memory, whether A is
_TILES = (
    *((64, 4, 3, 1), (64, 4, 2, 1), (128, 2, 4, 1), (64, 2, 3, 1)),
    *((64, 4, 3, 0), (64, 2, 4, 0), (128, 2, 3, 0), (128, 1, 4, 0), (256, 1, 4, 0)),
)
# Instructions for a weight, with its share of a step's: 16-bit arithmetic, of 4 bits and others; float32
_TOP, _FUSED, _TURNED = 3.05, 5.2, 7.0
# Factors of the rates of issue and units, which take turns, and of the cache
_ISSUE, _PRODUCTS, _FETCH = 0.76, 1.2, 1.3
# Reads of global memory that others wait for: until the first step; a step, with A not resident
# and resident; for the sums of ranges
_START, _STEP, _RANGES = 28.0, (0.9, 0.02), 17.5
_REGISTERS = 65536  # of a compute unit
_HELD = 48  # by a work-item, besides sums and what it has of A: the compiler makes do with it


class WgmmaQuantized(QuantizedUnits):
    """See cl/nvidia/wgmma_quantized.cl. BM x BN is a work-group's tile of out, BK its slices of 128. STAGES
    is the number of steps of weights in local memory. SPLIT_K is the number of ranges of K. Options:
    ``resident``: 1 if a range of A is in local memory as a whole; ``steps``, most steps of a range.
    """

    name = "wgmma_quantized"
    unit = "wgmma"
    summary = "few rows by affine weights on matrix units of sm_90a (wgmma)"
    options = ("resident", "steps")
    rows = (8, 16, 32, 64, 128)
    orders = ("rows", "fragments")
    source, function, target = "nvidia/wgmma_quantized.cl", "matmul_wgmma_quantized", "sm_90a"

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if why := super().obstacle(problem, device):
            return why
        if not weight_bits(problem):
            return f"its weights are affine, not {problem.b_format}"
        if problem.k % _k_multiple(problem):
            return f"K is {problem.k}, no multiple of {_k_multiple(problem)}"
        return None

    def offered(self, problem: GemmProblem, bm: int, device: DeviceInfo) -> Iterator[TileConfig]:
        for bn, slices, stages, resident in _TILES:
            bk = slices * DEPTH
            for ranges in self.ranges(problem, bm, bn, bk, device):
                options = {"resident": resident, "steps": ceil(_k_range(problem, ranges) / bk)}
                yield TileConfig(bm, bn, bk, stages=stages, split_k=ranges, options=options)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        c = config
        if c.bm not in self.rows or c.bn % 64 or c.bk % DEPTH or c.split_k < 1:
            return [f"bm is one of {self.rows}, bn a multiple of 64, bk one of {DEPTH}: {config}"]
        if c.option("resident", 0) not in (0, 1) or c.stages < 3 - c.option("resident", 0):
            return [f"resident must be 0 or 1, stages 3 or more, with resident 2: {config}"]
        if self.k_range(problem, c) > c.option("steps", 0) * c.bk:
            return [f"a range of K has more steps: {config}"]
        if _registers(c) * self.items(c) > _REGISTERS:
            return [f"sums of so many rows take too many registers: {config}"]
        needed = _local_bytes(problem, c) + 16
        return config.violations(device, (self.items(config),), needed, local_bytes(device))

    def items(self, config: TileConfig) -> int:
        return 2 * config.bn * (config.bk // DEPTH)

    def maps(self, config: TileConfig, groups: int) -> tuple[Workspace | str, ...]:
        if config.option("resident", 0):
            return ("batch_offsets",)
        return (Workspace("maps", groups * MAP_BYTES, zeroed=True),)

    def k_range(self, problem: GemmProblem, config: TileConfig) -> int:
        return _k_range(problem, config.split_k)

    def sizes(self, problem: GemmProblem, config: TileConfig) -> tuple[tuple[str, int], ...]:
        c = config
        return (
            *(("BM", c.bm), ("BN", c.bn), ("TEAMS", c.bn // 16), ("SLICES", c.bk // DEPTH)),
            *(("STAGES", c.stages), ("RESIDENT", c.option("resident", 0)), ("STEPS", c.option("steps", 0))),
        )

    def steps(self, config: TileConfig) -> tuple[int, ...]:
        return config.bk, config.bk * config.stages

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        rates, units, c = device.rates, device.units, config
        groups = tiles_of(problem, c.bm, c.bn) * problem.batch * c.split_k
        local = _local_bytes(problem, c)
        resident = max(1, min(_REGISTERS // (_registers(c) * self.items(c)), local_bytes(device) // local))
        share, rounds = ceil(groups / units), ceil(groups / (units * resident))
        depth, kept = problem.k / c.split_k, c.option("resident", 0)
        waits = rounds * (_START + depth / c.bk * _STEP[kept]) + (_RANGES + c.split_k if c.split_k > 1 else 0)
        turned = _turned(problem) / (rates.float32 * _ISSUE)
        multiplied = c.bm / (rates.matrix("halves") * _PRODUCTS)
        busy = units * share * c.bn * depth * (turned + multiplied)
        weights = format_of(problem).row_nbytes(problem.k)
        ahead = (c.stages - 1) * c.bn * c.bk / problem.k * weights * min(resident, groups / units)
        slower = waiting_factor(device, ahead)
        fetched = groups * (c.bm * depth * 2 + c.bn * weights / c.split_k)
        if c.split_k > 1:
            fetched += 8 * problem.m * problem.n * problem.batch * c.split_k
        moved = max(rates.moved(problem.nbytes) * slower, fetched / (rates.cache * _FETCH))
        return rates.launch + waits * rates.latency + max(busy, moved)


def _turned(problem: GemmProblem) -> float:
    if not is_fused(problem):
        return _TURNED
    return _TOP if weight_bits(problem) == 4 else _FUSED


def _k_multiple(problem: GemmProblem) -> int:
    """K of which a column's scales take a multiple of four bytes, which are copied together."""
    form = format_of(problem)
    return max(DEPTH, form.group_size * 4 // ELEMENTS[form.dtype].nbytes)


def _k_range(problem: GemmProblem, ranges: int) -> int:
    return round_up(ceil(problem.k / ranges), _k_multiple(problem))


def _registers(config: TileConfig) -> int:
    return _HELD + config.bm // 2


def _local_bytes(problem: GemmProblem, config: TileConfig) -> int:
    """As the macros of wgmma_quantized.cl say."""
    c, form = config, format_of(problem)
    slices, steps = c.bk // DEPTH, c.option("steps", 0)
    runs = c.bn * slices * 16 * weight_bits(problem)
    a = c.bm * c.bk * 2 * (steps if c.option("resident", 0) else c.stages)
    groups = round_up(steps * c.bk // form.group_size, 2)
    scales = c.bn * (2 * groups * ELEMENTS[form.dtype].nbytes + 4)
    bars = 16 * c.stages + 128 + 1024
    return max(c.stages * runs + a + scales + 15, slices * c.bm * (c.bn + 4) * 4) + bars
