"""`packed`: panels and a register tile for CPU devices, after Goto and BLIS."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...problem.dtypes import dtype_of
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import (
    Arg,
    Kernel,
    Launch,
    Program,
    Work,
    Workspace,
    gemm_args,
    gemm_defines,
    local_range,
    round_up,
    vector_defines,
)
from .blocking import UNROLL_K
from .packed_cost import packed_seconds
from .packed_shape import SHORT_K, cut, packs_a, packs_b, planes, range_of_k, real_size, shapes, sum_size
from .partial_sums import PartialSums

_SOURCE = "cpu/packed.cl"
# (steps of K, panels) that a work-group packs of an operand along K, and of one across K.
_ALONG, _ACROSS = (512, 1), (128, 32)


class Packed(Kernel):
    """See cl/cpu/packed.cl. TM x TN is the register tile, VEC the length of its vectors, BM x BN x BK the
    largest macro-tile, SPLIT_K the number of ranges of K. Options: see packed_shape.py.
    """

    name = "packed"
    summary = "packed panels and a register tile, one work-item in each work-group, for CPU devices"
    options = ("pack_a", "pack_b")

    def supports(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if not device.is_cpu:
            return f"packed is for CPU devices, this is a {device.kind}"
        if device.ends_loops_early:
            return f"packed is for CPU devices that run loops to their end, not for {device.name!r}"
        return device.missing_type(problem.types)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return [c for c in shapes(problem, device) if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        return packed_seconds(problem, config, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = []
        if config.bm % config.tm or config.bn % config.tn:
            reasons.append(f"BM and BN must be multiples of TM and TN: {config}")
        if config.vec not in (2, 4, 8, 16) or config.tn * planes(problem) % config.vec:
            reasons.append(f"VEC must be 2, 4, 8 or 16 and divide TN reals: {config}")
        if config.bk < 1 or config.bk % UNROLL_K or config.split_k < 1:
            reasons.append(f"BK must be a multiple of {UNROLL_K}, SPLIT_K at least 1: {config}")
        if config.vec * real_size(problem) * 8 > device.vector_bits:
            reasons.append(f"vectors of {config.vec} are wider than the device's {device.vector_bits} bits")
        local_bytes = config.bm * config.bn * sum_size(problem) if config.split_k == 1 else 0
        return reasons + config.violations(device, (1,), local_bytes)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        return _Builder(problem, config, device).work()


class _Builder:
    """The launches of one product: pack where needed, multiply, add partial sums."""

    def __init__(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> None:
        self.problem = problem
        self.config = config
        self.cut = cut(problem, config, device)
        self.pack_a = packs_a(problem, config)
        self.pack_b = packs_b(problem, config)
        self.program = Program(_SOURCE, (*gemm_defines(problem), *self._defines(device)))
        self.args = gemm_args(problem)
        self.workspace: list[Workspace] = []
        self.steps: list[Launch] = []

    def _defines(self, device: DeviceInfo) -> list[tuple[str, int]]:
        c = self.config
        return [
            ("MR", c.tm),
            ("NR", c.tn),
            *vector_defines(c, device),
            ("PACK_A", int(self.pack_a)),
            ("PACK_B", int(self.pack_b)),
            ("BM", c.bm),
            ("BN", c.bn),
            ("SPLIT", int(c.split_k > 1)),
        ]

    def work(self) -> Work:
        p, c, tiles = self.problem, self.config, self.cut
        a_panels = self._panels("a", self.pack_a, p.m, c.tm, round_up(p.k, UNROLL_K))
        b_panels = self._panels("b", self.pack_b, p.n, c.tn, p.k)
        register_tiles = -(-p.n // c.tn) * -(-p.m // c.tm)
        sums = PartialSums(p, c.split_k, register_tiles, c.tm * c.tn * sum_size(p))
        partial: Arg = "out"  # any pointer: never used
        if c.split_k > 1:
            self.workspace.append(sums.workspace)
            partial = sums.workspace.symbol
        steps = range_of_k(p, c)
        rows_first = tiles.rows_first and p.k > SHORT_K
        sizes = map(np.int32, (tiles.mc, tiles.nc, tiles.kc, tiles.rows, rows_first, c.split_k, steps))
        groups = (tiles.columns, tiles.rows * c.split_k)
        if rows_first:
            groups = groups[::-1]
        self._launch("packed_multiply", groups, p.batch, (*sizes, *a_panels, *b_panels, partial))
        if c.split_k > 1:
            self.steps.append(sums.added(self.program))
        return Work(tuple(self.steps), tuple(self.workspace))

    def _panels(self, name: str, packed: bool, length: int, tile: int, steps: int) -> tuple[Arg, Arg]:
        """Append the launch that packs an operand. Returns the panels and the stack's stride in them."""
        if not packed:
            return name, np.int64(0)
        strides = self.problem.batch_strides["ab".index(name)]
        entries = self.problem.batch if any(strides) else 1  # one operand for the whole stack
        stack = round_up(length, tile) * steps
        element = dtype_of(self.problem.acc_type).itemsize
        symbol = self._space(f"{name}_panels", stack * entries * element)
        distance = np.int64(stack if entries > 1 else 0)
        along = not self.problem.trans_a if name == "a" else self.problem.trans_b
        chunk, span = _ALONG if along else _ACROSS
        groups = (-(-length // (tile * span)), max(1, -(-self.problem.k // chunk)))
        args = (np.int32(chunk), np.int32(span), symbol, distance)
        self._launch(f"pack_{name}", groups, entries, args, packs=name)
        return symbol, distance

    def _space(self, name: str, nbytes: int) -> str:
        self.workspace.append(Workspace(name, nbytes))
        return self.workspace[-1].symbol

    def _launch(
        self, kernel: str, groups: tuple[int, int], entries: int, extra: tuple[Arg, ...], packs: str = ""
    ) -> None:
        size = (*groups, entries) if self.problem.batch_shape else groups
        local = local_range(self.problem, 1, 1)
        self.steps.append(Launch(self.program, kernel, size, local, (*self.args, *extra), packs))
