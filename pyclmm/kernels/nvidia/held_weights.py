"""What `wgmma_quantized` and `wgmma_fragments` share: weights in registers for matrix units of sm_90a."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..cost import waiting_factor
from ..device import DeviceInfo
from ..interface import Workspace, tiles_of
from ..weights import format_of
from .matrix_units import MAP_BYTES, local_bytes
from .quantized_units import DEPTH, QuantizedUnits, is_fused, weight_bits

# With sums of 128 rows. With more, and fewer registers each, the compiler lets each wgmma wait for the last.
_MOST_ITEMS = 288


class Costs(NamedTuple):
    """What an estimate counts. ``top``, ``fused``, ``turned``: instructions for a weight, with its share of a
    step's: 16-bit arithmetic, of 4 bits and others; float32. ``issue``, ``products``, ``fetch``: factors of
    the rates of issue and units, which take turns, and of the cache. ``start``, ``step``, ``ranges``: reads
    of memory that others wait for: until the first step; in a step, with A not resident and resident; for
    the sums of ranges.
    """

    top: float
    fused: float
    turned: float
    issue: float
    products: float
    fetch: float
    start: float
    step: tuple[float, float]
    ranges: float


_REGISTERS = 65536  # of a compute unit
_HELD = 48  # by a work-item, besides sums and what it has of A: the compiler makes do with it


class HeldWeights(QuantizedUnits):
    """BM x BN is a work-group's tile of out, BK its slices of 128. STAGES is the number of steps of
    weights in local memory. SPLIT_K is the number of ranges of K. Options: ``resident``: 1 if a range of A is
    in local memory as a whole; ``steps``, most steps of a range.
    """

    unit = "wgmma"
    options = ("resident", "steps")
    rows = (8, 16, 32, 64, 128)
    target = "sm_90a"
    # BN, slices of a work-group, steps that are in local memory, whether A is
    tiles: tuple[tuple[int, int, int, int], ...]
    costs: Costs

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if why := super().obstacle(problem, device):
            return why
        if not weight_bits(problem):
            return f"its weights are affine, not {problem.b_format}"
        if problem.k % self.k_multiple(problem):
            return f"K is {problem.k}, no multiple of {self.k_multiple(problem)}"
        return None

    def offered(self, problem: GemmProblem, bm: int, device: DeviceInfo) -> Iterator[TileConfig]:
        for bn, slices, stages, resident in self.tiles:
            bk = slices * DEPTH
            for ranges in self.ranges(problem, bm, bn, bk, device):
                options = {"resident": resident, "steps": ceil(self.k_range(problem, ranges) / bk)}
                yield TileConfig(bm, bn, bk, stages=stages, split_k=ranges, options=options)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        c = config
        if c.bm not in self.rows or c.bn % 64 or c.bk % DEPTH or c.split_k < 1:
            return [f"bm is one of {self.rows}, bn a multiple of 64, bk one of {DEPTH}: {config}"]
        if c.option("resident", 0) not in (0, 1) or c.stages < self.least_stages(c):
            return [f"resident must be 0 or 1, stages {self.least_stages(c)} or more: {config}"]
        if self.k_range(problem, c.split_k) > c.option("steps", 0) * c.bk:
            return [f"a range of K has more steps: {config}"]
        if c.bm == 128 and self.items(c) > _MOST_ITEMS:
            return [f"sums of so many rows take too many registers: {config}"]
        needed = self.local_bytes(problem, c) + 16
        return config.violations(device, (self.items(config),), needed, local_bytes(device))

    def items(self, config: TileConfig) -> int:
        return 2 * config.bn * (config.bk // DEPTH)

    def maps(self, config: TileConfig, groups: int) -> tuple[Workspace | str, ...]:
        if config.option("resident", 0):
            return ("batch_offsets",)
        return (Workspace("maps", groups * MAP_BYTES, zeroed=True),)

    def least_stages(self, config: TileConfig) -> int:
        """The least number of stages."""
        return 2

    @abstractmethod
    def local_bytes(self, problem: GemmProblem, config: TileConfig) -> int:
        """As the macros of its program say."""

    def sizes(self, problem: GemmProblem, config: TileConfig) -> tuple[tuple[str, int], ...]:
        c = config
        return (
            *(("BM", c.bm), ("BN", c.bn), ("TEAMS", c.bn // 16), ("SLICES", c.bk // DEPTH)),
            *(("STAGES", c.stages), ("RESIDENT", c.option("resident", 0)), ("STEPS", c.option("steps", 0))),
        )

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        rates, units, c, costs = device.rates, device.units, config, self.costs
        groups = tiles_of(problem, c.bm, c.bn) * problem.batch * c.split_k
        local = self.local_bytes(problem, c)
        registers = (_HELD + c.bm // 2) * self.items(c)
        resident = max(1, min(_REGISTERS // registers, local_bytes(device) // local))
        share, rounds = ceil(groups / units), ceil(groups / (units * resident))
        depth, kept = problem.k / c.split_k, c.option("resident", 0)
        waits = rounds * (costs.start + depth / c.bk * costs.step[kept])
        waits += costs.ranges + c.split_k if c.split_k > 1 else 0
        turned = _turned(problem, costs) / (rates.float32 * costs.issue)
        multiplied = c.bm / (rates.matrix("halves") * costs.products)
        busy = units * share * c.bn * depth * (turned + multiplied)
        weights = format_of(problem).row_nbytes(problem.k)
        ahead = (c.stages - 1) * c.bn * c.bk / problem.k * weights * min(resident, groups / units)
        slower = waiting_factor(device, ahead)
        fetched = groups * (c.bm * depth * 2 + c.bn * weights / c.split_k)
        if c.split_k > 1:
            fetched += 8 * problem.m * problem.n * problem.batch * c.split_k
        moved = max(rates.moved(problem.nbytes) * slower, fetched / (rates.cache * costs.fetch))
        return rates.launch + waits * rates.latency + max(busy, moved)


def _turned(problem: GemmProblem, costs: Costs) -> float:
    if not is_fused(problem):
        return costs.turned
    return costs.top if weight_bits(problem) == 4 else costs.fused


def staged_bytes(problem: GemmProblem, config: TileConfig, scales: int) -> int:
    """Local memory of a work-group with so many bytes of scales and biases."""
    c, slices, steps = config, config.bk // DEPTH, config.option("steps", 0)
    runs = c.bn * slices * 16 * weight_bits(problem)
    a = c.bm * c.bk * 2 * (steps if c.option("resident", 0) else c.stages)
    bars = 16 * c.stages + 128 + 1024
    return max(c.stages * runs + a + scales + 15, slices * c.bm * (c.bn + 4) * 4) + bars
