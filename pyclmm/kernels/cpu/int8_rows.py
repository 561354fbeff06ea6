"""`int8_quantized`, few rows, and `int8_tile`, many, that are rounded to 8 bits, by quantised weights, on CPU
devices. Only if asked for.

Their estimates: weights come at the memory's rate, and while they do, each becomes a code, and is multiplied
by each row. The first unpacks a weight for every ``tm`` rows, the second once for 64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...formats import FORMATS
from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, Accepts
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import Loops, Work, Workspace, gemm_launch, round_up
from ..weights import GROUPS_A_UNIT, TYPES, format_of, launch_on_cpu, no_weights, one_item, program_on_cpu
from .pieces import CpuKernel

STEP, _GROUPS = 64, 16  # weights of a step; groups of which a block is made (cl/quantized/int8_rows.cl)
_COLUMNS = 4
_CHUNK = 64  # rows for which a weight is unpacked once (cl/quantized/int8_tile.cl)
# Multiply-adds of float32 in whose time a weight is read and becomes a code, and in which it is multiplied by
# a row; with AVX-512 of which the compiler was not told. Zen 5, PoCL 3.0 and Intel's runtime, 2026-11-29
_ROWS, _ROWS_BEYOND = (1.0, 1.0), (1.5, 0.53)
# The same of a tile: a weight is unpacked, and multiplied by a row. Of 4 and of 8 bits
_4, _8 = (8.0, 0.42), (9.0, 0.6)
_4_BEYOND, _8_BEYOND = (7.5, 0.27), (9.0, 0.28)
_ROUND = 4e-9  # seconds in which a compute unit rounds a number of A
_FORMATS = [form for form in FORMATS if form.has_codes]
OFFERED = tuple(dict.fromkeys(f"affine{f.bits}" if f.mode == "affine" else f.name for f in _FORMATS))


class _RowsOf8Bits(CpuKernel):
    """See cl/quantized/int8_lines.h. ``tm`` rows by ``tn`` columns at a time, sums in vectors of ``vec``."""

    accepts = Accepts(TYPES, GENERAL | {"b_format", "quantize_a"})
    has_barriers = False
    rows: tuple[int, ...]  # that tm may be
    entry: str

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if not problem.quantize_a:
            return 'rounds A to 8 bits, which quantize_a="int8" asks for'
        if why := no_weights(problem):
            return why
        if not format_of(problem).has_codes:
            return f"quantize_a is offered with {', '.join(OFFERED)}, not {format_of(problem).name}"
        if problem.k % STEP or problem.k == 0:
            return f"K is {problem.k}, no positive multiple of {STEP}; leave quantize_a out"
        return None

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = [] if config.tm in self.rows else [f"TM must be one of {self.rows}: {config}"]
        return [*reasons, *one_item(config, device)]

    def arithmetic(self, config: TileConfig) -> str:
        return "A rounded to whole numbers of 8 bits, and the weights' whole numbers"

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        return Loops((config.tm,), (config.tn,), (_block(problem),))

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        """One rounds A into lines of workspace, the other multiplies these."""
        program = program_on_cpu(problem, f"quantized/{self.entry}.cl", config, device)
        blocks = -(-problem.k // _block(problem))
        line = problem.k + 8 * blocks * _GROUPS + round_up(problem.k // 8, 64)
        space = Workspace("rounded", problem.batch * problem.m * line)
        rounded = gemm_launch(problem, program, "round_a", (problem.m, blocks), (1, 1), (space.symbol,))
        return Work(
            (rounded, launch_on_cpu(problem, program, self.entry, config, device, space.symbol)), (space,)
        )

    def _seconds(self, problem: GemmProblem, device: DeviceInfo, multiply_adds: float) -> float:
        rates, rows = device.rates, problem.m * problem.batch
        started = 2 * rates.launch + rates.group * GROUPS_A_UNIT
        rounding = rows * problem.k * _ROUND / device.units
        multiplying = multiply_adds * problem.batch / rates.float32
        return started + rounding + together(rates.moved(problem.nbytes), multiplying)


class Int8Quantized(_RowsOf8Bits):
    """See cl/quantized/int8_rows.cl."""

    name = "int8_quantized"
    summary = 'rows rounded to 8 bits by quantised weights, for CPU devices; with quantize_a="int8" alone'
    rows, entry = (1, 2, 4), "int8_rows"

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        rows = next((r for r in self.rows if r >= problem.m), self.rows[-1])
        sums = 2 * device.vector_bits // 64  # vectors: half of the registers
        told = TileConfig(tm=rows, tn=max(1, min(_COLUMNS, sums // rows)), vec=_lanes(device))
        beyond = device.target.beyond // 32 if format_of(problem).bits == 4 else 0
        return [replace(told, vec=beyond), told] if beyond else [told]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        weights = problem.n * problem.k * -(-problem.m // config.tm)
        turn, row = _ROWS_BEYOND if _beyond(config, device) else _ROWS
        return self._seconds(problem, device, weights * (turn + row * config.tm))


class Int8Tile(_RowsOf8Bits):
    """See cl/quantized/int8_tile.cl."""

    name = "int8_tile"
    summary = "the same for many rows: weights are unpacked once for 64 of them"
    rows, entry = (1, 2, 4, 8), "int8_tile"

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        lanes = _lanes(device)
        if lanes == 16:
            return [TileConfig(tm=8, tn=16, vec=16)]
        told = TileConfig(tm=4 if format_of(problem).bits == 4 else 2, tn=2 * lanes, vec=lanes)
        return [TileConfig(tm=4, tn=16, vec=16), told] if device.target.beyond else [told]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        of_4, of_8 = (_4_BEYOND, _8_BEYOND) if _beyond(config, device) else (_4, _8)
        unpack, row = of_4 if format_of(problem).bits == 4 else of_8
        per_weight = unpack * -(-problem.m // _CHUNK) + row * round_up(problem.m, config.tm)
        return self._seconds(problem, device, problem.n * problem.k * per_weight)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        fits = config.tn in (config.vec, 2 * config.vec)
        reasons = [] if fits else [f"TN must be VEC or twice as many: {config}"]
        return [*reasons, *super().violations(problem, config, device)]


def _lanes(device: DeviceInfo) -> int:
    return 8 if "avx2" in device.target.features else device.vector_bits // 32


def _beyond(config: TileConfig, device: DeviceInfo) -> bool:
    return config.vec * 32 > device.vector_bits


def _block(problem: GemmProblem) -> int:
    """Weights along K whose scales become numbers at a time."""
    return _GROUPS * format_of(problem).group_size
