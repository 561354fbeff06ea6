"""`amx`: the matrix units of Intel's processors (AMX), by inline assembly in PoCL's OpenCL C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, Accepts, Types
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import (
    GATE,
    Arg,
    Kernel,
    Launch,
    MatrixKernel,
    Work,
    Workspace,
    gemm_args,
    gemm_program,
    local_range,
    round_up,
    too_long,
    vector_defines,
)
from ..plain import Plain
from .packed_shape import Cut

_BLOCK = 32  # BLOCK of cl/cpu/amx_tiles.h
_STEP_BYTES = 64  # of a row of a tile
_SUM_BYTES = 4
_ALONG, _ACROSS = (64, 1), (8, 16)  # (steps of K, panels) that a work-group packs
_LANES = 16
# Of the rate of the instructions; elements that a compute unit stores in a second, bytes that it packs. Xeon,
# docs/kernels/amx.md
_FRACTION, _STORED, _COPIED = 0.3, 3.5e9, 9e9
_CHECKED = GATE


class Amx(MatrixKernel):
    """See cl/cpu/amx.cl. ``plain``: the families that may compute the product if the data need it, and in a
    configuration how. BM x BN is the largest macro-tile, BK the elements along K that it takes at a time.
    Option ``pack_a``: A is copied into panels.
    """

    name = unit = "amx"
    summary = "AMX, the matrix units of Intel's processors, for bfloat16 and 8-bit integers on PoCL"
    accepts = Accepts((Types(("bfloat16",), "float32"), Types(("int8", "uint8"), "uint32")), EPILOGUE)
    has_barriers = False
    options = ("pack_a",)

    def __init__(self, plain: Sequence[Kernel]) -> None:
        self._plain = Plain(plain)

    def unsuited(self, device: DeviceInfo) -> str | None:
        if lacking := super().unsuited(device):
            return f"{lacking}: {device.amx.refusal}"
        return None if device.vector_bits == 512 else "amx needs a compiler that was told of AVX-512"

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if ("bfloat16" if problem.a_type == "bfloat16" else "int8") not in device.amx.types:
            return f"amx cannot be used here: the processor does not multiply {problem.a_type}"
        return too_long(problem) or (self._plain.refusal(problem, device) if _checked(problem) else None)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return _BLOCK, _BLOCK

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        # Sums take an eighth of the second-level cache, BK x BN of B a half
        l2, step = device.caches.l2, _step(problem)
        side = min(_side(l2 // 8), _side(device.local_mem_size))
        config = TileConfig(
            bm=min(side, round_up(problem.m, _BLOCK)),
            bn=min(side, round_up(problem.n, _BLOCK)),
            bk=max(1, l2 // 2 // (side * _STEP_BYTES)) * step,
            vec=_LANES,
            plain=self._plain.best(problem, device) if _checked(problem) else None,
        )
        found = [replace(config, options={"pack_a": 1}), replace(config, options={"pack_a": 0})]
        return [c for c in found if not self.violations(problem, c, device)]

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = []
        step = _step(problem)
        if config.bm % _BLOCK or config.bn % _BLOCK or not config.bm * config.bn:
            reasons.append(f"BM and BN must be multiples of {_BLOCK}: {config}")
        if config.bk < step or config.bk % step:
            reasons.append(f"BK must be a multiple of {step}: {config}")
        if config.vec != _LANES or config.split_k != 1:
            reasons.append(f"VEC must be {_LANES}, SPLIT_K 1: {config}")
        if not config.option("pack_a", 1) and not _may_stay(problem):
            reasons.append(f"with pack_a=0 M is a multiple of {_BLOCK}, K of {step}, A along K, unchecked")
        if config.plain is not None:
            reasons += self._plain.violations(problem, config, device)
        return reasons + config.violations(device, (1,), config.bm * config.bn * _SUM_BYTES)

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        rates, tiles = device.rates, _cut(problem, config, device)
        m, n, k = (
            round_up(problem.m, _BLOCK),
            round_up(problem.n, _BLOCK),
            round_up(problem.k, _step(problem)),
        )
        size = ELEMENTS[problem.a_type].nbytes
        rounds = -(-tiles.rows * tiles.columns * problem.batch // device.units)
        each = (
            tiles.mc
            * tiles.nc
            * (k / (rates.matrix(ELEMENTS[problem.a_type].unit) * _FRACTION / device.units) + 1 / _STORED)
        )
        seconds = together(rounds * each, rates.moved(problem.nbytes))
        pack_a = config.option("pack_a", 1)
        panels = (m * pack_a + n) * k * size * problem.batch
        seconds += together(panels / (_COPIED * device.units), rates.moved(2 * panels))
        launches = 2 + pack_a
        if _checked(problem):
            launches += 1 + len(self._plain_launches(problem, config, device).launches)
        return seconds + launches * rates.launch + rates.group

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        work = _AmxWork(problem, config, device).work()
        if not _checked(problem):
            return work
        plain = self._plain_launches(problem, config, device)
        return Work((*work.launches, *plain.launches), (*work.workspace, *plain.workspace), plain.tables)

    def _plain_launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        own = config if config.plain else replace(config, plain=self._plain.best(problem, device))
        return self._plain.launches(problem, own, device)


class _AmxWork:
    """The launches of one product: pack both operands, multiply."""

    def __init__(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> None:
        self.problem, self.config, self.device = problem, config, device
        self.checked = _checked(problem)
        self.pack_a = config.option("pack_a", 1)
        defines = [
            *vector_defines(config, device),
            *(
                ("BM", config.bm),
                ("BN", config.bn),
                ("KC", config.bk // _step(problem)),
                ("PACK_A", self.pack_a),
                ("CHECKED", int(self.checked)),
            ),
        ]
        self.program = gemm_program(problem, "cpu/amx.cl", defines)
        self.workspace: list[Workspace] = []
        self.steps: list[Launch] = []
        self.plan: Arg = _CHECKED if self.checked else "out"  # any pointer: never used

    def work(self) -> Work:
        p, tiles = self.problem, _cut(self.problem, self.config, self.device)
        b = self._pack("b", p.n, p.trans_b)
        a = self._pack("a", p.m, not p.trans_a) if self.pack_a else ("a", np.int64(0))
        if self.checked:
            self.workspace.append(Workspace("plan", 8, zeroed=True))
            self.steps.append(Launch(self.program, "amx_choose", (1,), (1,), (_CHECKED,)))
        rows_first = int(p.m >= p.n)
        groups = (tiles.rows, tiles.columns) if rows_first else (tiles.columns, tiles.rows)
        sizes = map(np.int32, (tiles.mc, tiles.nc, rows_first))
        self._launch("amx_multiply", groups, p.batch, (*sizes, *a, *b, self.plan))
        return Work(tuple(self.steps), tuple(self.workspace))

    def _pack(self, name: str, length: int, along: bool) -> tuple[Arg, Arg]:
        """Append the launch that packs an operand. Returns the panels and the stack's stride in bytes."""
        p, size = self.problem, ELEMENTS[self.problem.a_type].nbytes
        entries = p.batch if any(getattr(p.batch_strides, name)) else 1
        steps = -(-p.k // _step(p))
        stack = round_up(length, _BLOCK) * steps * _step(p) * size
        space = Workspace(f"amx_{name}", stack * entries)
        self.workspace.append(space)
        panels: tuple[Arg, Arg] = (space.symbol, np.int64(stack if entries > 1 else 0))
        chunk, span = _ALONG if along else _ACROSS
        groups = (-(-length // (_BLOCK * span)), -(-steps // chunk))
        extra = (np.int32(chunk), np.int32(span), *panels, self.plan)
        self._launch(f"amx_pack_{name}", groups, entries, extra, "" if self.checked else name)
        return panels

    def _launch(
        self, kernel: str, groups: tuple[int, int], entries: int, extra: tuple[Arg, ...], packs: str = ""
    ) -> None:
        size = (*groups, entries) if self.problem.batch_shape else groups
        args = (*gemm_args(self.problem), *extra)
        self.steps.append(Launch(self.program, kernel, size, local_range(self.problem, 1, 1), args, packs))


def _checked(problem: GemmProblem) -> bool:
    """Whether the data decide if the instructions are exact enough: they take subnormal numbers for zero."""
    return problem.a_type == "bfloat16" and problem.precision != "medium"


def _may_stay(problem: GemmProblem) -> bool:
    """Whether A can be read in place."""
    whole = problem.m % _BLOCK == 0 and problem.k % _step(problem) == 0
    return whole and not problem.trans_a and not _checked(problem)


def _step(problem: GemmProblem) -> int:
    """Elements along K in a tile."""
    return _STEP_BYTES // ELEMENTS[problem.a_type].nbytes


def _side(nbytes: int) -> int:
    """The side of the largest square macro-tile whose sums take *nbytes*."""
    return max(_BLOCK, int((nbytes / _SUM_BYTES) ** 0.5) // _BLOCK * _BLOCK)


def _cut(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Cut:
    """Macro-tiles of equal size, for all compute units: those whose slowest unit has the least to do."""
    units = -(-device.units // problem.batch)
    least_rows, least_columns = -(-problem.m // config.bm), -(-problem.n // config.bn)
    found = []
    for rows in range(least_rows, least_rows + units + 1):
        for columns in {least_columns, max(least_columns, -(-units // rows))}:
            mc, nc = (round_up(-(-x // y), _BLOCK) for x, y in ((problem.m, rows), (problem.n, columns)))
            down, across = -(-problem.m // mc), -(-problem.n // nc)
            rounds = -(-down * across * problem.batch // device.units)
            found.append((rounds * mc * nc, rounds * (mc + nc), Cut(mc, nc, down, across)))
    return min(found, key=lambda x: x[:2])[2]
