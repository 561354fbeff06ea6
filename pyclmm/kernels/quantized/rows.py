"""`quantized`: few rows by quantised weights, which are read once and become numbers in registers.

Its estimate: weights come at the memory's rate, and while they do, each becomes a number and is multiplied by
every row of A. With many rows `dequantized` is faster, where the device has room for the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, Accepts
from ..config import TileConfig
from ..cost import ON_CPU, on_cpu, together, waiting_factor
from ..device import DeviceInfo
from ..interface import GROUP, Kernel, Loops, Work, gemm_defines, gemm_launch, round_up
from ..split_k import PartialSums, TileRange
from ..weights import (
    GROUPS_A_UNIT,
    RUN,
    TYPES,
    format_of,
    launch_on_cpu,
    no_weights,
    one_item,
    program_of,
    program_on_cpu,
)

_HELD = (1, 2, 4, 8, 16)  # rows of A that a program may multiply at a time
# (lanes, teams, columns of a team) on GPUs
_SHAPES = ((64, 4, 4), (32, 8, 4), (32, 4, 4), (16, 8, 4), (32, 8, 2), (16, 4, 2), (4, 4, 2), (1, 1, 1))
_IN_ORDER = ("q4_0", "q4_1", "q4_k")  # formats of 4 bits whose codes are in the order of x when unpacked
_CPU_ROWS, _COLUMNS, _COLUMNS_WIDE = 4, 4, 8
# Multiply-adds in whose time a weight becomes a number, and is rounded to 16 bits
_TURN, _ROUND = 4.0, 2.0
_TURN_NIBBLE, _BUSY_NIBBLE = 1.0, 0.75  # the same on CPUs where codes of 4 bits are read as bytes. Zen 5
_ROW_ON_GPUS = 2.3  # and in whose time a number of A comes from local memory and is multiplied. H200
_BUSY = 0.6  # fraction of the rate of multiply-adds
# On GPUs, not measured: reads of global memory until the first weights arrive, and for the sums at the end;
# bytes of weights on their way for each column
_START, _IN_FLIGHT = 10.0, 16


class Quantized(Kernel):
    """See cl/quantized/rows.cl and, for CPU devices, rows_cpu.cl. ``tm`` rows of A are multiplied at a time.

    ``lanes`` x ``teams`` work-items compute ``teams`` x ``tn`` columns, with K split into as many ranges as
    fill the device if ``split_k`` is 0. Without lanes a work-item of a CPU multiplies ``tn`` columns at a
    time in vectors of ``vec``.
    """

    name = "quantized"
    summary = "few rows by quantised weights, each of which is read once"
    accepts = Accepts(TYPES, GENERAL | {"b_format"})
    options = ("lanes", "teams")

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if why := no_weights(problem):
            return why
        return "K is 0: there is nothing to multiply" if problem.k == 0 else None

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        rows = next((r for r in _HELD if r >= problem.m), _HELD[-1])
        held = min(rows, _CPU_ROWS)
        found = []
        for bits in dict.fromkeys((device.widest_bits, device.vector_bits)):
            few = bits < 512 or format_of(problem).mode in _IN_ORDER
            columns = min(_COLUMNS if few else _COLUMNS_WIDE, bits // 32 // held)  # half of the registers
            found.append(TileConfig(tm=held, tn=max(1, columns), vec=bits // 32))
        for lanes, teams, tn in _SHAPES:
            found.append(TileConfig(tm=rows, tn=tn, split_k=0, options={"lanes": lanes, "teams": teams}))
        return [c for c in found if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        rates = device.rates
        turn, busy = (_TURN_NIBBLE, _BUSY_NIBBLE) if _by_nibbles(problem, config) else (_TURN, _BUSY)
        turn += 0.0 if problem.a_type == "float32" else _ROUND
        row = _ROW_ON_GPUS if config.option("lanes") else 1.0
        busy *= max(1.0, config.vec * 32 / device.vector_bits)  # of the rate with the vectors of the device
        steps = problem.n * problem.k * problem.batch * -(-problem.m // config.tm) * (turn + row * config.tm)
        reading, multiplying = rates.moved(problem.nbytes), steps / (rates.float32 * busy)
        if not config.option("lanes"):
            return rates.launch + rates.group * GROUPS_A_UNIT + together(reading, multiplying)
        ranges, items = _ranges(problem, config, device), config.option("lanes") * config.option("teams")
        groups = _tiles(problem, config) * problem.batch * ranges
        asked = items * config.tn * _IN_FLIGHT * max(1.0, groups / device.units)
        seconds = together(reading * waiting_factor(device, asked), multiplying) + rates.latency * _START
        seconds = seconds * (ON_CPU if device.is_cpu else 1) + on_cpu(device, groups, items)
        return seconds + rates.launch * (2 if ranges > 1 else 1) + rates.group * groups

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = [] if config.tm in _HELD else [f"TM must be one of {_HELD}: {config}"]
        lanes, teams = config.option("lanes"), config.option("teams")
        if lanes:
            nbytes = 4 * (config.tm * lanes * (RUN + 4) + config.tn * (lanes * teams + 1))
            steps = device.too_many_steps(problem.k * config.tm * config.tn // lanes)
            reasons += config.violations(device, (lanes * teams,), nbytes, device.static_local_bytes)
            return [*reasons, *filter(None, [steps])]
        if problem.trans_a or not device.is_cpu or device.ends_loops_early:
            reasons.append(
                f"without lanes the device is a CPU that runs loops to their end, A along K: {config}"
            )
        return [*reasons, *one_item(config, device)]

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        lanes, teams = (max(1, config.option(name)) for name in self.options)
        return Loops((config.tm,), (config.tn * teams,), (lanes * RUN,))

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        if config.option("lanes"):
            return _by_items(problem, config, device)
        program = program_on_cpu(problem, "quantized/rows_cpu.cl", config, device)
        return Work((launch_on_cpu(problem, program, "quantized_rows", config, device),))


def _by_nibbles(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether rows_cpu.cl reads codes of 4 bits by themselves: the format's header has NIBBLE_VALUES."""
    form = format_of(problem)
    wide = config.vec == 16 or (config.vec == 8 and form.mode in _IN_ORDER)
    return wide and form.bits == 4 and form.name not in ("nvfp4", "mxfp4_gguf")


def _by_items(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
    """Tiles of the result, and a launch that adds partial sums if K is split."""
    lanes, teams, tiles = config.option("lanes"), config.option("teams"), _tiles(problem, config)
    k_range = round_up(-(-problem.k // _ranges(problem, config, device)), RUN)
    split = -(-problem.k // k_range)
    sums = PartialSums(problem, config.tm, teams * config.tn, TileRange(0, tiles, split))
    tile = (("BM", sums.bm), ("BN", sums.bn), ("GROUP", GROUP))
    shape = (("LANES", lanes), ("TEAMS", teams), ("SPLIT", int(split > 1)))
    program = program_of(problem, "quantized/rows.cl", (*gemm_defines(problem), *tile, *shape))
    size, local, extra = (tiles * lanes * teams, split), (lanes * teams, 1), (np.int32(k_range), sums.partial)
    return sums.behind(gemm_launch(problem, program, "quantized_rows", size, local, extra), device)


def _tiles(problem: GemmProblem, config: TileConfig) -> int:
    return -(-problem.m // config.tm) * -(-problem.n // (config.tn * config.option("teams")))


def _ranges(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """The number of ranges of K: as many as give every compute unit two work-groups, of two steps or more."""
    if config.split_k:
        return max(1, min(config.split_k, problem.k // RUN))
    wanted = 2 * device.units // (_tiles(problem, config) * problem.batch)
    return max(1, min(wanted, problem.k // (RUN * config.option("lanes") * 2)))
