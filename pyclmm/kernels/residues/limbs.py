"""`limbs`: float64 products by products of 32-bit integers, for devices that have no fast 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import GATE, Kernel, Work, Workspace, round_up
from ..plain import Plain
from .decision import WHOLE_NUMBERS, choose, launch, lost_bits, measure, spaces, too_deep

_MOST_BITS = 58  # of an element: two limbs (cl/residues/limbs.cl)
_HALF_BITS = 126.0  # whole numbers stay below 2^126
_MOST_PLACES = 1 << 31  # numbers of an operand: places are 32-bit integers
_ITEMS = 64  # most of the work-groups of limbs_convert and limbs_round
# A product takes as long as so many multiply-adds of 32-bit integers at the rate that we know: on CPUs by the
# vendor of the driver (PoCL 3.0, 3.1, Intel 2026.2, llvmpipe of Mesa 22.3, 512 and 1024 cubed, 2026-11-24);
# on a GPU four products with their loads (H200, 2048 and 4096 cubed, 2026-11-25).
_ON_CPU = {"pocl": 55.0, "intel": 14.0, "mesa": 6.0}
_ON_CPU_OF_OTHERS = 55.0
_ON_GPU = 13.0
# (tm, tn, work-items along a row, along a column)
_TILES = ((4, 4, 16, 4), (2, 2, 16, 4), (1, 1, 4, 1))


class Limbs(Kernel):
    """See cl/residues/limbs.cl. ``plain``: the families that may compute the product where whole numbers do
    not serve. TM x TN is the tile of a work-item, BM x BN that of a work-group.
    """

    name = "limbs"
    summary = 'float64 and complex128 with precision="high", by products of 32-bit integers'
    accepts = WHOLE_NUMBERS
    has_barriers = False
    options = ("plain",)

    def __init__(self, plain: Sequence[Kernel]) -> None:
        self._plain = Plain(plain)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        depth, lines = problem.k * problem.sums.planes, max(problem.m, problem.n)
        if problem.batch * lines * depth >= _MOST_PLACES:
            return f"operands of {_MOST_PLACES} numbers and more are not multiplied by residues of limbs"
        return (
            too_deep(problem, device)
            or device.too_many_steps(problem.k)
            or self._plain.refusal(problem, device)
        )

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        plain = self._plain.best(problem, device)
        if plain is None:
            return []
        found = [TileConfig(bm=tm * y, bn=tn * x, tm=tm, tn=tn, plain=plain) for tm, tn, x, y in _TILES]
        return [config for config in found if not self.violations(problem, config, device)]

    def arithmetic(self, config: TileConfig) -> str:
        return f"whole numbers of 58 bits by products of 32-bit integers; {self._plain.where_needed(config)}"

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        planes, rates = problem.sums.planes, device.rates
        each = _ON_CPU.get(device.vendor, _ON_CPU_OF_OTHERS) if device.is_cpu else _ON_GPU
        operands, results = (problem.m + problem.n) * problem.k, problem.m * problem.n
        moved = 8 * planes * problem.batch * (4 * operands + 5 * results)
        seconds = 7 * rates.launch + problem.flops / 2 * each / rates.int32 + rates.moved(moved)
        return seconds if serves(problem) else seconds + self._plain.estimate(problem, config, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config.bm % config.tm or config.bn % config.tn:
            return [f"tm must divide bm, and tn must divide bn: {config}"]
        return [
            *config.violations(device, _items(config), 0),
            *self._plain.violations(problem, config, device),
        ]

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        plain = self._plain.launches(problem, config, device)
        depth, (x, y) = problem.k * problem.sums.planes, _items(config)
        items = device.group_items(_ITEMS)
        decided = ("workspace:scales", GATE)
        defines = (("TM", config.tm), ("TN", config.tn), ("ITEMS_X", x), ("ITEMS_Y", y))
        convert_a, convert_b = (
            launch(
                problem, "limbs", "convert", (round_up(width, items), rows), (items, 1),
                (*decided, f"workspace:limbs_{operand}", np.int32(operand == "b")), defines,
            )
            for operand, width, rows in (("a", depth, problem.m), ("b", problem.n, depth))
        )  # fmt: skip
        size = (round_up(problem.n, config.bn) // config.tn, round_up(problem.m, config.bm) // config.tm)
        operands = (GATE, "workspace:limbs_a", "workspace:limbs_b", "workspace:wholes")
        multiply = launch(problem, "limbs", "multiply", size, (x, y), operands, defines)
        results = (round_up(problem.n, items), problem.m)
        sums = (*decided, "workspace:wholes")
        rounded = launch(problem, "limbs", "round", results, (items, 1), sums, defines)
        first = (measure(problem, device), choose(problem, device, (_HALF_BITS,), 1, _MOST_BITS))
        needed = (
            *spaces(problem, device),
            Workspace("limbs_a", 8 * problem.batch * problem.m * depth),
            Workspace("limbs_b", 8 * problem.batch * problem.n * depth),
            Workspace("wholes", 16 * problem.batch * problem.m * problem.n * problem.sums.planes),
            *plain.workspace,
        )
        return Work((*first, *plain.launches, convert_a, convert_b, multiply, rounded), needed)


def serves(problem: GemmProblem) -> bool:
    """Whether normally distributed data are multiplied by limbs; else the plain product is computed."""
    planes = problem.sums.planes
    return lost_bits(problem.k * planes, planes) <= _MOST_BITS


def _items(config: TileConfig) -> tuple[int, int]:
    """Work-items of a work-group."""
    return config.bn // config.tn, config.bm // config.tm
