"""`amx`: the matrix units of Intel's processors (AMX), by inline assembly in PoCL's OpenCL C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import BYTES, EPILOGUE, Accepts, Types
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import (
    GATE,
    Arg,
    Kernel,
    Launch,
    MatrixKernel,
    Program,
    Work,
    Workspace,
    gemm_launch,
    gemm_program,
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


class Amx(MatrixKernel):
    """See cl/cpu/amx.cl. ``plain``: the families that may compute the product if the data need it, and in a
    configuration how. BM x BN is the largest macro-tile, BK the elements along K that it takes at a time.
    Option ``pack_a``: A is copied into panels.
    """

    name = unit = "amx"
    summary = "AMX, the matrix units of Intel's processors, for bfloat16 and 8-bit integers on PoCL"
    accepts = Accepts((Types(("bfloat16",), "float32"), BYTES), EPILOGUE)
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
        if config.bm % _BLOCK or config.bn % _BLOCK:
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
        m, n = round_up(problem.m, _BLOCK), round_up(problem.n, _BLOCK)
        k = round_up(problem.k, _step(problem))
        size = ELEMENTS[problem.a_type].nbytes
        rounds = -(-tiles.rows * tiles.columns * problem.batch // device.units)
        rate = rates.matrix(ELEMENTS[problem.a_type].unit) * _FRACTION / device.units
        each = tiles.mc * tiles.nc * (k / rate + 1 / _STORED)
        seconds = together(rounds * each, rates.moved(problem.nbytes))
        pack_a = config.option("pack_a", 1)
        panels = (m * pack_a + n) * k * size * problem.batch
        seconds += together(panels / (_COPIED * device.units), rates.moved(2 * panels))
        launches = 2 + pack_a
        if _checked(problem):
            launches += 1 + len(self._plain_launches(problem, config, device).launches)
        return seconds + launches * rates.launch + rates.group

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        """Those that pack both operands and multiply; and the plain product's where the data decide."""
        checked, pack_a, tiles = _checked(problem), config.option("pack_a", 1), _cut(problem, config, device)
        defines = (
            *vector_defines(config, device), *config.macros("bm", "bn"),
            ("KC", config.bk // _step(problem)), ("PACK_A", pack_a), ("CHECKED", int(checked)),
        )  # fmt: skip
        program = gemm_program(problem, "cpu/amx.cl", defines)
        packings = [_packing(problem, name, program) for name in ("b", "a")[: 1 + pack_a]]
        launches, spaces = [one.launch for one in packings], [one.space for one in packings]
        b, *packed_a = (one.panels for one in packings)
        a = packed_a[0] if pack_a else ("a", np.int64(0))
        if checked:
            spaces.append(Workspace("plan", 8, zeroed=True))
            launches.append(Launch(program, "amx_choose", (1,), (1,), (GATE,)))
        rows_first = int(problem.m >= problem.n)
        groups = (tiles.rows, tiles.columns) if rows_first else (tiles.columns, tiles.rows)
        extra = (*map(np.int32, (tiles.mc, tiles.nc, rows_first)), *a, *b, _plan(problem))
        launches.append(gemm_launch(problem, program, "amx_multiply", groups, (1, 1), extra))
        if not checked:
            return Work(tuple(launches), tuple(spaces))
        plain = self._plain_launches(problem, config, device)
        return Work((*launches, *plain.launches), (*spaces, *plain.workspace), plain.tables)

    def _plain_launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        own = config if config.plain else replace(config, plain=self._plain.best(problem, device))
        return self._plain.launches(problem, own, device)


class _Packing(NamedTuple):
    """The launch that packs an operand into *space*. ``panels``: these, and the stack's stride in bytes."""

    launch: Launch
    space: Workspace
    panels: tuple[Arg, Arg]


def _packing(problem: GemmProblem, name: str, program: Program) -> _Packing:
    """How the operand called *name* is packed, once if all products of a stack have the same."""
    length, along = (problem.m, not problem.trans_a) if name == "a" else (problem.n, problem.trans_b)
    entries = problem.batch if any(getattr(problem.batch_strides, name)) else 1
    steps = -(-problem.k // _step(problem))
    stack = round_up(length, _BLOCK) * steps * _STEP_BYTES
    space = Workspace(f"amx_{name}", stack * entries)
    panels: tuple[Arg, Arg] = (space.symbol, np.int64(stack if entries > 1 else 0))
    chunk, span = _ALONG if along else _ACROSS
    launch = gemm_launch(
        problem, program, f"amx_pack_{name}", (-(-length // (_BLOCK * span)), -(-steps // chunk)), (1, 1),
        (np.int32(chunk), np.int32(span), *panels, _plan(problem)),
        entries=entries, packs="" if _checked(problem) else name,
    )  # fmt: skip
    return _Packing(launch, space, panels)


def _plan(problem: GemmProblem) -> Arg:
    """The argument of that name."""
    return GATE if _checked(problem) else "out"  # any pointer: never used


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
