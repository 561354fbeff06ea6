"""The configurations of `wgmma`: how tiles are distributed to work-groups, and which are fastest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, gcd

from ...problem.dtypes import ELEMENTS, ElementType
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import round_up
from . import wgmma_results
from .matrix_units import LINE_ALIGN, Operands, block_of, local_bytes
from .unit_cost import pack_seconds, sums_seconds
from .wgmma_results import DRAIN_BLOCKS, can_drain, can_leave_as_lines
from .work_pieces import WorkPieces, members, quartets

_OTHER_LOCAL_BYTES = 512 + 128 + 64 + 1024  # tensor maps, barriers, tile numbers, alignment
# Tiles, and the factor by which copies for each are slower on an H200 than the arithmetic below says.
_TILES = {
    (128, 256): 0.98,
    (128, 224): 1.0,
    (128, 192): 1.0,
    (128, 160): 1.0,
    (192, 192): 1.0,
    (256, 128): 1.03,
    (192, 128): 1.0,
    (128, 128): 1.0,
    (64, 256): 0.97,
    (64, 128): 0.86,
    (192, 64): 1.0,
    (128, 64): 1.0,
    (64, 64): 0.96,
    (64, 32): 0.91,
}
_SMALL_TILE = 64 * 64
_LEAST_ROWS = min(bm for bm, _ in _TILES)
# Tiles whose sums fit the registers of one quartet, and the factor by which each is slower where quartets
# alternate
_ALTERNATE_TILES = {(128, 128): 1.1, (64, 256): 1.04, (64, 128): 1.28}
# Besides: for elements of one byte; for sums modulo numbers
_ALTERNATE_BYTES, _ALTERNATE_MODULI = 0.845, 1.07
# The factor by which products with A staged in registers are slower, in tiles narrower than 256 columns. That
# of 192 was not measured: between 128 and 256
_LEFT_TILES = {(128, 128): 1.3, (128, 192): 1.1}
# BM, BN, alternate: A is not staged in registers, as the sums leave none, or 192 rows cut its boxes of 128
_NOT_LEFT = ((256, 128, 0), (192, 192, 0), (192, 128, 0), (192, 64, 0), (128, 128, 1), (64, 256, 1))
_MOST_SPLIT_K = 64
_MULTIPLY = 1.0  # fraction of the matrix units' rate
# Constants of the model, in reads of global memory (Rates.latency):
# Copying 128 bytes of a line to local memory, by the bytes of which all lines begin on multiples
_COPY = {16: 0.017, 32: 0.0127, 64: 0.0109, 128: 0.0097}
_ACROSS = 0.85  # the same for an operand across K, relative to one along K
_BLOCK, _LEFT_BLOCK = 1.09, 1.4  # the least time of a block; the same with A staged in registers
_START = 7.6  # until the first block arrives
_START_GROUP = 6.9e-09  # seconds for each work-group
_MOVED = 0.83  # fraction of the rates of cache and memory
# Option ``cluster``: work-groups that share a tile of B (cl/nvidia/ptx_map.h); what copying a line of it
# costs each of them then, of a line for one alone
CLUSTER = 2
_SHARED = 0.75


def stage_bytes(config: TileConfig) -> int:
    """Bytes of local memory of one block of A and B."""
    return (config.bm + config.bn) * 128


def stacked(problem: GemmProblem) -> int:
    """How many products of a stack one set of work-groups computes. 1: each product has its own."""
    if problem.moduli and problem.batch != len(problem.moduli):  # the products that are needed are no prefix
        return 1
    even = all(_evenly_apart(problem, strides) for strides in problem.batch_strides[:2])
    return problem.batch if even and problem.m * problem.n * problem.batch < 2**40 else 1


def stack_strides(problem: GemmProblem) -> tuple[int, int]:
    """Elements from one A of a stack to the next, and from one B to the next, if both are evenly apart."""
    a, b = (_axes(problem, strides) for strides in problem.batch_strides[:2])
    return (a[-1][1] if a else 0, b[-1][1] if b else 0)


def _axes(problem: GemmProblem, strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(length, stride) of the stack's axes that are longer than 1."""
    return [(n, s) for n, s in zip(problem.batch_shape, strides, strict=True) if n > 1]


def _evenly_apart(problem: GemmProblem, strides: tuple[int, ...]) -> bool:
    """Whether operand z of a stack starts z times a fixed distance after the first."""
    axes = _axes(problem, strides)
    last = axes[-1][1] if axes else 0
    counted = 1
    for length, stride in reversed(axes):
        if stride != last * counted:
            return False
        counted *= length
    return 0 <= last < 2**32


def seen(problem: GemmProblem, config: TileConfig) -> GemmProblem:
    """The product that cl/nvidia/wgmma.cl computes: the transposed one with option ``swapped``."""
    return problem.transposed if config.option("swapped") else problem


def _copied_lines(tile: int, length: int, across: bool, unit: ElementType) -> int:
    """Lines of 128 bytes that are copied for a block of one operand. Across K they come in whole boxes."""
    lines = min(tile, round_up(length, 8))
    return round_up(lines, min(tile, block_of(unit))) if across else lines


def _copy(ld: int, unit: ElementType) -> float:
    """The time to copy 128 bytes of a line, in reads of global memory."""
    return _COPY[max(LINE_ALIGN, gcd(ld * unit.nbytes, 128))]


def block_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Seconds to multiply a block of K of a tile, or to copy it to local memory, whichever is longer."""
    operands, latency, unit = Operands.of(problem), device.rates.latency, ELEMENTS[problem.a_type]
    lines_a = _copied_lines(config.bm, problem.m, operands.across_a, unit)
    lines_b = _copied_lines(config.bn, problem.n, operands.across_b, unit)
    shared = _SHARED if members(config) > 1 else 1.0
    across_a, across_b = (_ACROSS if x else 1.0 for x in (operands.across_a, operands.across_b))
    read = operands.as_packed(problem)
    copies = lines_a * _copy(read.lda, unit) * across_a + lines_b * _copy(read.ldb, unit) * across_b * shared
    rate = device.rates.matrix(unit.unit) * _MULTIPLY / device.units
    products = config.bm * config.bn * block_of(unit) / rate
    least = (_LEFT_BLOCK if operands.a_in_registers else _BLOCK) * latency
    staged = _LEFT_TILES.get((config.bm, config.bn), 1.0) if operands.a_in_registers else 1.0
    return max(copies * latency * _TILES[config.bm, config.bn], products * staged, least)


def _alternating(problem: GemmProblem) -> float:
    """The factor by which quartets that alternate are slower for these elements and results."""
    if problem.moduli:
        return _ALTERNATE_MODULI
    return _ALTERNATE_BYTES if ELEMENTS[problem.a_type].nbytes == 1 else 1.0


def estimated_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Seconds of the waves of work-groups, or of moving operands and result; of packing; of partial sums."""
    rates, view, unit = device.rates, seen(problem, config), ELEMENTS[problem.a_type]
    pieces = WorkPieces.of(view, config, device, view.batch)
    blocks = ceil(view.k / block_of(unit))
    block = block_seconds(view, config, device)
    store = wgmma_results.store_seconds(view, config, device)
    main, waves = blocks * block, ceil(pieces.whole * pieces.cluster / device.units)
    if config.option("alternate"):  # while one quartet stores, the other multiplies
        seconds = (waves - 1) * max(main, (main + store) / 2) + main + store if waves else 0.0
    elif config.option("drain"):
        seconds = wgmma_results.drained_seconds(view, config, waves, main, store)
    else:
        seconds = waves * (main + store)
    if pieces.cut:
        seconds += ceil(blocks / pieces.split_k) * block + store
    if config.option("alternate"):
        seconds *= _ALTERNATE_TILES[config.bm, config.bn] * _alternating(problem)
    seconds = together(seconds, rates.moved(wgmma_results.moved(view, config)) / _MOVED)
    padded = pieces.cut * config.bm * config.bn
    seconds += sums_seconds(padded, pieces.split_k, 4, device) if pieces.cut else 0
    seconds += pack_seconds(Operands.of(view).packed_elements(view), unit.nbytes, device)
    return seconds + rates.launch + _START * rates.latency + _START_GROUP * pieces.groups(device)


def tile_configs(problem: GemmProblem, device: DeviceInfo) -> list[TileConfig]:
    """A configuration for each tile that fits."""
    found: list[TileConfig] = []
    bk = block_of(ELEMENTS[problem.a_type])
    lines = {"lines": 1} if wgmma_results.worth_lines(problem, device) else {}
    for swapped in _orientations(problem):
        for bm, bn in _TILES:
            options = {"alternate": 0, "group": 8, **lines, **swapped}
            config = _filled(TileConfig(bm=bm, bn=bn, bk=bk, options=options), device)
            view = seen(problem, config)
            if config.stages >= 2 and not _cuts_boxes(view, config):
                found += _variants(view, config, device)
                found += _drained(view, config, device)
    found = [c for c in found if not _starved(problem, c)]
    clustered = (c.with_options(cluster=CLUSTER) for c in found if problem.m > c.bm)
    return found + [c for c in clustered if not _cluster_obstacle(problem, c, device)]


def _filled(config: TileConfig, device: DeviceInfo) -> TileConfig:
    """The configuration with as many stages as fit, at most 8."""
    room = local_bytes(device) - _OTHER_LOCAL_BYTES - wgmma_results.behind_stages(config)
    return replace(config, stages=min(8, room // stage_bytes(config)))


def _cluster_obstacle(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> str | None:
    """Why work-groups of *config* cannot share a tile of B, or None."""
    if members(config) not in (1, CLUSTER):
        return f"cluster must be 1 or {CLUSTER}"
    if members(config) == 1:
        return None
    if not device.clusters:
        return "clusters are only in launches by CUDA, on devices of compute capability 9.0"
    if config.split_k > 1 or config.option("alternate") or config.option("swapped"):
        return "clusters are without split_k, alternate and swapped"
    if ELEMENTS[problem.a_type].nbytes != 2 or problem.ragged:
        return "clusters are for elements of 2 bytes, and not where rows or K are divided"
    return None


def _cuts_boxes(view: GemmProblem, config: TileConfig) -> bool:
    """Whether a tile ends within a box of B, of 64 columns where B is stored across K."""
    return config.bn > 64 and config.bn % 64 > 0 and Operands.of(view).across_b


def _starved(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether A would have to be staged in registers, and cannot be."""
    where = (config.bm, config.bn, config.option("alternate"))
    return where in _NOT_LEFT and Operands.of(seen(problem, config)).a_in_registers


def _orientations(problem: GemmProblem) -> list[dict[str, int]]:
    """``swapped`` to try, or not: what packs less; both if that is the same and M or N is small."""
    views = (problem, problem.transposed)
    straight, swapped = (Operands.of(view).packed_elements(view) for view in views)
    both = straight == swapped and min(problem.m, problem.n) < _LEAST_ROWS
    return [*([{}] if straight <= swapped else []), *([{"swapped": 1}] if both or swapped < straight else [])]


def _variants(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Iterator[TileConfig]:
    """The configuration itself, with quartets that alternate, and each of them with split-K."""
    ways = [config]
    if (config.bm, config.bn) in _ALTERNATE_TILES:
        ways.append(_filled(config.with_options(alternate=1), device))
    yield from ways
    split_k = _split_k(problem, config, device)
    if split_k > 1:
        yield from (replace(c, split_k=split_k) for c in ways)


def _drained(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Iterator[TileConfig]:
    """The configuration with results that leave while the next tile is multiplied, if that is of use: if some
    work-group has a next tile, and there are blocks of K to hide results behind.
    """
    tiles = WorkPieces.of(problem, config, device, stacked(problem)).tiles
    if tiles <= device.compute_units or not can_drain(problem, config):
        return
    drained = _filled(config.with_options(drain=1), device)
    if drained.stages >= 2 and ceil(problem.k / config.bk) >= DRAIN_BLOCKS[ELEMENTS[problem.out_type].nbytes]:
        yield drained


def _split_k(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """How many ranges of K, of two blocks or more, fill the last wave. 1: no split-K."""
    left = WorkPieces.of(problem, config, device, problem.batch).tiles % device.compute_units
    if not left or (problem.batch > 1 and stacked(problem) == 1):
        return 1
    return min(device.compute_units // left, problem.k // (2 * config.bk), _MOST_SPLIT_K)


def tile_violations(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
    """Why cl/nvidia/wgmma.cl cannot be built with *config*."""
    reasons = config.violations(device, (work_items(config),), 0)
    if problem.is_listed:
        reasons += _ragged_violations(problem, config)
    block = block_of(ELEMENTS[problem.a_type])
    if (config.bm, config.bn) not in _TILES or config.bk != block:
        reasons.append(f"wgmma has tiles of {list(_TILES)} x {block}, not {config}")
    if not 1 <= config.split_k <= _MOST_SPLIT_K:
        reasons.append(f"split_k must be 1 to {_MOST_SPLIT_K}: {config}")
    if config.option("alternate") and (config.bm, config.bn) not in _ALTERNATE_TILES:
        reasons.append(f"quartets alternate on tiles of {list(_ALTERNATE_TILES)}, not {config}")
    if why := _cluster_obstacle(problem, config, device):
        reasons.append(f"{why}: {config}")
    if config.option("swapped") not in (0, 1):
        reasons.append(f"swapped must be 0 or 1: {config}")
    else:
        reasons += _operand_violations(problem, config)
    needed = config.stages * stage_bytes(config) + wgmma_results.behind_stages(config) + _OTHER_LOCAL_BYTES
    if config.stages < 2 or needed > local_bytes(device):
        reasons.append(f"{config.stages} stages take {needed} bytes of local memory: use 2 or more that fit")
    return reasons


def _ragged_violations(problem: GemmProblem, config: TileConfig) -> Iterator[str]:
    if config.split_k > 1 or config.option("swapped") or config.option("drain"):
        yield f"where rows or K are divided, without split_k, swapped and drain: {config}"
    if problem.ragged and problem.ragged.axis == "k" and config.bn < 64:
        yield f"where K is divided, without BN under 64: {config}"


def _operand_violations(problem: GemmProblem, config: TileConfig) -> Iterator[str]:
    view = seen(problem, config)
    if _cuts_boxes(view, config):
        yield f"B across K has boxes of 64 columns, which BN has to be a multiple of: {config}"
    if _starved(problem, config):
        yield f"an operand across K cannot be staged in registers on this tile: {config}"
    if config.option("drain") and not can_drain(view, config):
        yield f"results cannot leave while the next tile is multiplied: {config}"
    if config.option("lines") and (config.option("drain") or not can_leave_as_lines(view)):
        yield f"lines are for results of 2 and 4 bytes, without drain and moduli: {config}"


def feeders(config: TileConfig) -> int:
    """FEEDERS of cl/nvidia/wgmma_feeders.h: sub-groups that take turns to start an operand's copies."""
    return 2 if config.bm * config.bn <= _SMALL_TILE else 1


def work_items(config: TileConfig) -> int:
    """A work-group's size: one quartet that copies, and those that multiply."""
    return 128 * (1 + quartets(config))
