"""`mma_quantized`: few rows of 16-bit floats by quantised weights, on matrix units of NVIDIA's sm_80 and up.

The limits of its estimate, for each compute unit: weights come at the memory's rate; a block of rows is read
from the cache by every work-group; a weight takes instructions until it is a 16-bit number; mma.sync
multiplies (docs/quantised_kernels.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, hypot

import numpy as np

from ...formats import BlockFormat
from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, Accepts, Types
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import (
    Defines,
    Loops,
    MatrixKernel,
    Work,
    Workspace,
    gemm_defines,
    gemm_launch,
    round_up,
    tiles_of,
)
from ..split_k import PartialSums, TileRange
from ..weights import RUN, format_of, no_weights, program_of
from .matrix_units import LINE_ALIGN, local_bytes

_MOST_ROWS = 128  # of A: with more, weights that are turned into numbers once serve many
_DEPTH = 128  # of K, in a slice
_BM = (8, 16, 32, 64)
# BN, SGN, slices of a work-group, stages, steps that weights are loaded ahead
_TILES = (
    (256, 32, 2, 2, 1), (128, 32, 4, 2, 1), (128, 32, 2, 2, 2), (128, 32, 2, 3, 2), (64, 32, 4, 2, 2),
    (256, 32, 1, 3, 2), (128, 32, 1, 3, 2), (128, 16, 2, 2, 2), (128, 16, 2, 2, 3), (128, 16, 1, 3, 2),
    (64, 16, 2, 3, 2), (64, 16, 4, 2, 2), (64, 16, 4, 2, 3), (32, 16, 4, 2, 2),
)  # fmt: skip
_GROUPS = 2  # work-groups for each compute unit that ranges of K aim at
_MOST_RANGES = 16
# Not measured: instructions for a weight, where 16-bit arithmetic gives it and elsewhere; those of a
# multiplication of 16 x 8 x 16, with its part of A. Fractions of the rates of issue, units and cache.
_FUSED, _TURNED, _FORMAT = 2.4, 4.2, 10.0
_ISSUED = 1.4
_ISSUE, _PRODUCTS, _FETCH = 0.75, 0.55, 0.76
# Reads of global memory: until the first weights arrive and for the end; a step; sums of ranges
_START, _STEP, _RANGES = 14.0, 0.5, 8.0
_ENOUGH = 3.4  # latency of device memory, in reads that the cache answers: as in gpu/thin.py
# Measured times over what this model gives: 2.1 to 3.0 on an H200 (docs/quantised_kernels.md)
_OVER = 2.2
_REGISTERS = 64  # of a work-item, besides those for weights that come and for sums
# Of these, in work-groups of up to 256 work-items, and of more: with more registers ptxas spills
_MOST_HELD, _MOST_HELD_MANY = 128, 56


class MmaQuantized(MatrixKernel):
    """See cl/nvidia/mma_quantized.cl. BM x BN is a work-group's tile of out, SGN columns of it a sub-group's,
    BK its slices of 128. SPLIT_K is the number of ranges of K. Option ``ahead``: how many steps weights are
    loaded ahead.
    """

    name = "mma_quantized"
    unit = "mma"
    summary = "few rows by quantised weights on matrix units of sm_80 and later (mma.sync)"
    accepts = Accepts((Types(("float16", "bfloat16"), "float32", weights=True),), EPILOGUE | {"b_format"})
    options = ("ahead",)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if why := no_weights(problem) or super().obstacle(problem, device):
            return why
        if problem.m > _MOST_ROWS:
            return f"A has {problem.m} rows: at most {_MOST_ROWS} are few"
        if problem.trans_a or problem.a_align < LINE_ALIGN:
            return f"A is not stored along K in rows that begin on multiples of {LINE_ALIGN} bytes"
        return None

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        bm = next((rows for rows in _BM if rows >= problem.m), _BM[-1])
        found = [
            TileConfig(
                bm=bm,
                bn=bn,
                bk=slices * _DEPTH,
                sgn=sgn,
                stages=stages,
                split_k=ranges,
                options={"ahead": ahead},
            )
            for bn, sgn, slices, stages, ahead in _TILES
            for ranges in _ranges(problem, bm, bn, slices * _DEPTH, device)
        ]
        return [c for c in found if not self.violations(problem, c, device)]

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        c, ahead = config, config.option("ahead", 1)
        if c.bm not in _BM or c.sgn not in (16, 32) or c.bn % c.sgn or c.bk % _DEPTH or c.split_k < 1:
            return [f"bm is one of {_BM}, sgn 16 or 32 and divides bn, bk a multiple of {_DEPTH}: {config}"]
        if c.stages < 2 or not 1 <= ahead <= 4:
            return [f"stages must be 2 or more, ahead 1 to 4: {config}"]
        if _held(problem, c) > (_MOST_HELD if _items(c) <= 256 else _MOST_HELD_MANY):
            return [f"weights and sums of so many columns take too many registers: {config}"]
        needed = max(c.stages * c.bm * c.bk * 2, c.bm * (c.bn + 4) * 4) + 16
        return config.violations(device, (_items(config),), needed, local_bytes(device))

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        steps = config.bk, config.bk * config.stages, config.bk * config.option("ahead", 1)
        return Loops((config.bm,), (config.bn,), tuple(sorted({*steps})))

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        rates, units, c = device.rates, device.units, config
        groups = tiles_of(problem, c.bm, c.bn) * problem.batch * c.split_k
        resident = _resident(problem, c, device)
        share, rounds = ceil(groups / units), ceil(groups / (units * resident))
        steps = ceil(problem.k / c.split_k / c.bk)
        waits = _START + steps * _STEP + (_RANGES + c.split_k if c.split_k > 1 else 0)
        alone = rounds * waits * rates.latency
        run = RUN * format_of(problem).bits / 8  # bytes
        ahead = c.option("ahead", 1) * run * (c.sgn // 8) * _items(c) * min(resident, groups / units)
        slower = hypot(1, rates.memory / units * rates.latency * _ENOUGH / ahead)
        full = max(0.5, groups / (share * units))  # of the units, while the last work-groups run
        reading = rates.moved(problem.nbytes) * slower / full
        seconds = alone / 2 + together(alone, share * _busy(problem, c, device), reading)
        return rates.launch + _OVER * seconds

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        c, tiles = config, tiles_of(problem, config.bm, config.bn)
        k_range = round_up(ceil(problem.k / c.split_k), _DEPTH)
        ranges = ceil(problem.k / k_range)
        sums = PartialSums(problem, c.bm, c.bn, TileRange(0, tiles, ranges))
        arrived = Workspace("arrived", 4 * tiles * problem.batch, zeroed=True)
        sizes = (
            *(("ELEMENT", problem.a_type), ("BM", c.bm), ("TEAMS", c.bn // c.sgn), ("SGN", c.sgn)),
            *(("SLICES", c.bk // _DEPTH), ("STAGES", c.stages), ("AHEAD", c.option("ahead", 1))),
            ("SPLIT", int(ranges > 1)),
        )
        defines = (*gemm_defines(problem), *sizes, *_weight_defines(problem))
        program = program_of(problem, "nvidia/mma_quantized.cl", defines)
        spaces = (sums.workspace, arrived) if ranges > 1 else ()
        # without ranges, any pointers: never used
        extra = tuple(space.symbol for space in spaces) or ("batch_offsets", "batch_offsets")
        size, local = (tiles * _items(config), ranges), (_items(config), 1)
        launch = gemm_launch(
            problem, program, "matmul_mma_quantized", size, local, (np.int32(k_range), *extra)
        )
        return Work((launch,), spaces)


def _items(config: TileConfig) -> int:
    return 32 * (config.bn // config.sgn) * (config.bk // _DEPTH)


def _held(problem: GemmProblem, config: TileConfig) -> int:
    """Registers of a work-item for weights, which come or are turned into numbers, and for sums."""
    bits = _bits(problem)
    run = config.option("ahead", 1) * (bits + 3) if bits else RUN // 2
    return config.sgn // 8 * run + config.bm * config.sgn // 32


def _resident(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Work-groups that a compute unit holds."""
    registers = (_REGISTERS + _held(problem, config)) * _items(config)
    stages = config.stages * config.bm * config.bk * 2
    return max(1, min(device.unit.registers // registers, local_bytes(device) // stages))


def _busy(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Seconds of a compute unit's time that a work-group takes."""
    rates, units, c = device.rates, device.units, config
    depth = problem.k / c.split_k
    turned = _FORMAT if not _bits(problem) else _FUSED if _is_fused(problem) else _TURNED
    products = c.bm * c.bn * depth
    issued = c.bn * depth * turned + products / 128 * _ISSUED * 48 / (c.sgn + 16)
    fetched = c.bm * depth * 2 + c.bn * format_of(problem).row_nbytes(problem.k) / c.split_k
    return units * max(
        issued / (rates.float32 * _ISSUE),
        products / (rates.matrix("halves") * _PRODUCTS),
        fetched / (rates.cache * _FETCH),
    )


def _bits(problem: GemmProblem) -> int:
    """The bits of affine weights, which are loaded ahead; else 0."""
    form = format_of(problem)
    return form.bits if form.mode == "affine" else 0


def _is_fused(problem: GemmProblem) -> bool:
    """Whether 16-bit arithmetic gives affine weights (cl/nvidia/weights_ahead.h)."""
    significand = ELEMENTS[problem.a_type].significand
    return format_of(problem).dtype == problem.a_type and 0 < _bits(problem) <= significand


def _weight_defines(problem: GemmProblem) -> Defines:
    """The macros of cl/nvidia/weights_ahead.h."""
    form, bits = format_of(problem), _bits(problem)
    if not bits:
        in_blocks = isinstance(form, BlockFormat)
        return (("BITS", 0), ("BYTES_OF_256", form.row_nbytes(256) if in_blocks else 32 * form.bits))
    return (("BITS", bits), ("SCALE_ELEMENT", form.dtype), ("FUSED", int(_is_fused(problem))))


def _ranges(problem: GemmProblem, bm: int, bn: int, bk: int, device: DeviceInfo) -> tuple[int, ...]:
    """Numbers of ranges of K, each of four steps or more, with which tiles fill the device once or twice."""
    tiles = tiles_of(problem, bm, bn) * problem.batch
    most = max(1, min(problem.k // (4 * bk), _MOST_RANGES))
    return tuple(sorted({min(most, max(1, n * device.compute_units // tiles)) for n in (0, 1, _GROUPS)}))
