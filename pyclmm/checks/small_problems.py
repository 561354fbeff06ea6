"""Checks the programs of a product on small problems that reach what the programs can reach.

Their sizes come from the loops that the kernel says its programs have: three passes of each, the last one in
part, and long M, N and K, each beside short ones. Numbers, scalars, strides and a few sizes are drawn from a
seed of the programs and the device. known_answers.py says what is right, fma_reference.py which bits.
docs/design.md has the whole table. Kernels that copy and convert operands run on a small stack of matrices.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..kernels import Kernel, Program, Work
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.interface import round_up
from ..kernels.launches import COPY, batch_table, copy_launch
from ..opencl.launcher import info_of
from ..opencl.program import source_hash
from ..problem.gemm import ACTIVATIONS, Copy, GemmProblem
from ..problem.settings import EXACT_ACTIVATIONS
from . import reference
from .drawn import Drawn, over_the_range
from .fma_reference import parts_of
from .known_answers import FILL, computed, outcome, quietly, wrong_bits
from .layouts import Array, Decks, Placed, rearranged, resized

Shape = tuple[int, int, int]  # M, N, K

_LARGEST = 300  # M and N of whole tiles
_LONGEST_STEP = 64  # BK of whole tiles: K takes time; three blocks of any length are in the case of a long K
_LONG, _LONG_K = 2048, 8192  # of M or N, and of K, at least
_WHOLE_K = 512  # of whole tiles: about that many steps
_FEW = 17  # columns beside a long M: together they are more than 2^15
_LONGEST, _LONGEST_K = 2600, 20_000  # at most, if loops are longer
_MOST_RESULTS = 1 << 18  # of the case with three work-groups in each direction
_MANY_GROUPS = 300
_RANDOM, _MOST_PRODUCTS = 3, 1 << 19  # drawn sizes, and the most multiply-adds of each
_OWN = 64  # M, N and K up to this are also tried as the product has them: programs may depend on them
_WHOLE, _ACCESS = 64, 16  # multiples of the elements of every tile in memory, and of every access
# Choices of lengths along M, N and K, those first that differ least from the wanted ones; the same choice may
# be made along all of them.
_PATTERNS = sorted(
    (x for x in itertools.product(range(5), repeat=3) if sum(x) <= 5 or len({*x} - {0}) == 1),
    key=lambda pattern: (sum(pattern), pattern),
)
_CAPS = (160, 1200, 5000, 40000)  # of M, N and K, if programs depend on sizes
_CHAINED_CAPS = ((24, 24, 96), (1, 24, 96), (24, 1, 96), (160, 160, 8))
# A list's second product is shorter, by odd numbers too: programs for whole vectors are of a list of one.
_CHAINED_STACKS = (2, 1)
# "tiny": products and sums are subnormal; "ties": many sums lie halfway between two numbers
_CHAINED_DATA = ("normal", "tiny", "ties")
_MAX_ELEMENTS, _MAX_WORK = 1 << 25, 1 << 28

# Kernels that split operands take another path on spread data, and a third path if the data are large too.
_SPLIT = ("float32", "complex64", "float64", "complex128")
_COPIED = (3, 5, 37)  # more columns than two work-groups have
_LEAD = 2  # elements before the arrays


@dataclass(frozen=True)
class SmallProblem:
    """A small problem with the launches to run, and the numbers to run them on."""

    problem: GemmProblem
    work: Work
    drawn: tuple[Drawn, ...]


def first_wrong_result(
    queue: Any, problem: GemmProblem, kernel: Kernel, config: TileConfig, wanted: Work
) -> str | None:
    """Run small problems with the programs of *wanted*. Returns what is wrong with the first one, or None."""
    device, missing = info_of(queue), _programs(wanted)
    decks = Decks(np.random.default_rng(_seed(device, missing)))
    for case in cases(problem, kernel, config, device, wanted, decks):
        for drawn in case.drawn:
            reason = outcome(queue, case.problem, case.work, device, decks, drawn).reason
            if reason is not None:
                return f"wrong result in the self-check, {case.problem}, {drawn.value}: {reason}"
        missing -= _programs(case.work)
    if missing:
        return "no small problem runs all of its programs, so it cannot be checked"
    return _first_wrong_bits(queue, problem, kernel, config, wanted) if problem.reproducible else None


def _seed(device: DeviceInfo, programs: set[Program]) -> int:
    texts = [*device.identity.values(), *sorted(map(source_hash, programs))]
    return int.from_bytes(hashlib.sha256("\n".join(texts).encode()).digest()[:16], "little")


def _first_wrong_bits(
    queue: Any, problem: GemmProblem, kernel: Kernel, config: TileConfig, wanted: Work
) -> str | None:
    """What is wrong with the bits of the first small problem that has not the host's, or None."""
    device, programs = info_of(queue), _programs(wanted)
    missing = set(programs)
    for stack in _CHAINED_STACKS:
        for small in _chained_problems(problem, config, stack) if missing else ():
            if kernel.refuses(small, device) is not None or kernel.violations(small, config, device):
                continue
            work = kernel.launches(small, config, device)
            if _programs(work) <= programs:
                for data in _CHAINED_DATA:
                    reason = wrong_bits(queue, small, work, device, data)
                    if reason is not None:
                        return f"not reproducible in the self-check, {small}: {reason}"
                missing -= _programs(work)
    return "no small problem runs all of its programs, so its bits cannot be checked" if missing else None


def _chained_problems(problem: GemmProblem, config: TileConfig, stack: int) -> Iterator[GemmProblem]:
    """*problem* with sizes that the host computes in milliseconds. One has more steps than a block of K.
    Lengths are multiples of 8, as programs may depend on that, or odd. *stack*: as of :func:`resized`.
    """
    own = (problem.m, problem.n, problem.k)
    longest = min(config.bk, _LONGEST_STEP)
    sizes = [(24, 16, 2 * longest), (19, 13, 2 * longest + 1), (8, 8, config.bk + 64), (3, 5, config.bk + 67)]
    sizes += [(min(own[0], m), min(own[1], n), min(own[2], k)) for m, n, k in _CHAINED_CAPS]
    for m, n, k in dict.fromkeys(sizes):
        yield resized(problem, m, n, k if problem.k else 0, stack)


def _programs(work: Work) -> set[Program]:
    return {launch.program for launch in work.launches}


def cases(
    problem: GemmProblem, kernel: Kernel, config: TileConfig, device: DeviceInfo, wanted: Work, decks: Decks
) -> Iterator[SmallProblem]:
    """Small problems that run only programs of *wanted*, until every one of these has run."""
    search = _CaseSearch(problem, kernel, config, device, _programs(wanted), decks)
    missing = set(search.wanted)
    integers = (Drawn.INTEGERS,)
    if kernel.tiles_in_turn:
        turns = _several_tiles(problem, config)
        for work in search.works(turns, [(config, replace(device, compute_units=1))]):
            missing -= _programs(work)
            yield SmallProblem(turns, work, integers)
    for shape, stack, drawn in _wanted_cases(problem, kernel, config, decks.rng):
        for case in search.fitting(shape, stack, drawn):
            missing -= _programs(case.work)
            yield case
    for small in _near(problem):
        if not missing:
            return
        for work in search.works(small, search.ways):
            missing -= _programs(work)
            yield SmallProblem(small, work, (*integers, Drawn.REALS))


@dataclass
class _CaseSearch:
    """Finds small problems that run only *wanted* programs: others are for other sizes, and will not run."""

    problem: GemmProblem
    kernel: Kernel
    config: TileConfig
    device: DeviceInfo
    wanted: set[Program]
    decks: Decks
    tried: set[tuple[int, ...]] = field(default_factory=set)  # choices of lengths
    proven: set[tuple[int, ...]] = field(default_factory=set)  # those by which wanted programs ran

    def __post_init__(self) -> None:
        variants, devices = self.kernel.checked_as(self.config), self.kernel.checked_on(self.device)
        self.ways = list(itertools.product(variants, devices))

    def works(self, small: GemmProblem, ways: list[tuple[TileConfig, DeviceInfo]]) -> Iterator[Work]:
        """The launches of *small* in each of *ways* that has only wanted programs."""
        for variant, device in ways:
            if self.kernel.refuses(small, device) or self.kernel.violations(small, variant, device):
                continue
            work = self.kernel.launches(small, variant, device)
            if _programs(work) <= self.wanted:
                yield work

    def fitting(self, shape: Shape, stack: int, drawn: tuple[Drawn, ...]) -> Iterator[SmallProblem]:
        """A case of about that shape, in one of the ways. None if there is none."""
        self.ways.append(self.ways.pop(0))  # so that each way has cases
        for pattern, small in self._sized(shape, stack):
            both = (rearranged(small, self.decks), *(() if self.proven else (small,)))
            for way, problem in itertools.product(self.ways, both):
                for work in self.works(problem, [way]):
                    self.proven.add(pattern)
                    yield SmallProblem(problem, work, drawn)
                    return

    def _sized(self, shape: Shape, stack: int) -> Iterator[tuple[tuple[int, ...], GemmProblem]]:
        """The problem with about that shape: as it is, then other choices, as long as they have a chance."""
        own = (self.problem.m, self.problem.n, self.problem.k)
        choices = [self._lengths(*each) for each in zip(shape, own, strict=True)]
        for pattern in _PATTERNS:
            # Where K is 0 there may be no program at all.
            is_new = pattern not in self.tried and (shape[2] or not self.proven)
            hopeless = pattern not in self.proven and not is_new
            if hopeless or any(at >= len(x) for at, x in zip(pattern, choices, strict=True)):
                continue
            self.tried.add(pattern)
            m, n, k = (x[at] for at, x in zip(pattern, choices, strict=True))
            yield pattern, resized(self.problem, m, n, k, stack)

    @staticmethod
    def _lengths(length: int, own: int) -> list[int]:
        """The length; the next odd multiple of 16, which leaves a part of any wider tile, and a longer one,
        as programs may need for wide accesses and for more tiles; a short product's own; a multiple of 64.
        """
        if not own or not length:
            return [0]
        odd, whole = round_up(length - _ACCESS, 2 * _ACCESS) + _ACCESS, round_up(length, _WHOLE)
        return [length, odd, whole + _ACCESS, *[own] * (own <= _OWN), whole]


def _wanted_cases(
    problem: GemmProblem, kernel: Kernel, config: TileConfig, rng: np.random.Generator
) -> Iterator[tuple[Shape, int, tuple[Drawn, ...]]]:
    """Shape, length of a stack, and numbers of each case.

    Every loop makes three passes: in whole tiles and a few elements more, or along one axis at a time with
    the others short. One length more than whole tiles leaves one row or column to the last one.
    """
    loops = kernel.loops(problem, config)
    bm, bn = (min(size, _LARGEST // 2) for size in (config.bm, config.bn))
    bk = min(config.bk, _LONGEST_STEP)
    few_m, few_n = (2 * size + 1 if size > 1 else 9 for size in (config.tm, config.tn))
    step = 2 * bk + 7  # 3 of the last 4 elements
    long_m, long_n = (_long(axis, _LONG, _LONGEST) + 1 for axis in (loops.m, loops.n))
    long_k = _long(loops.k, _LONG_K, _LONGEST_K) + int(rng.integers(1, max(2, config.bk)))
    integers = (Drawn.INTEGERS,)
    splits = problem.precision == "high" and problem.a_type == problem.b_type and problem.a_type in _SPLIT
    reals = (Drawn.REALS, Drawn.SPREAD, Drawn.LARGE) if splits else (Drawn.REALS,)
    yield (bm + 3, bn + 5, step), 2, integers
    yield (min(bm, 32) + 3, min(bn, 32) + 5, step), 3, reals
    yield (min(bm, 32), min(bn, 32), 2 * bk), 4, (Drawn.REALS,)
    yield (2 * bm, 2 * bn, max(4 * bk, _WHOLE_K // bk * bk)), 2, integers
    yield (min(bm, 32) + 3, min(bn, 32) + 4, bk + 5), 3, (Drawn.EXTREMES,)
    yield (long_m, max(few_n, _FEW), step), 2, integers
    yield (few_m, long_n, step), 2, integers
    yield (few_m, few_n, long_k), 2, integers
    if (2 * config.bm + 1) * (2 * config.bn + 1) <= _MOST_RESULTS:
        yield (2 * config.bm + 1, 2 * config.bn + 1, bk + 1), 2, integers
    for number in range(_RANDOM):
        yield _drawn_shape(rng, bm, bn), 5, integers if number % 2 else (Drawn.REALS,)
    yield (3, 2, 5), 20, (Drawn.REALS,)
    if problem.ragged:  # more groups than a work-group of cl/ragged.cl has work-items
        yield (60, 2, 5), _MANY_GROUPS, integers
    yield (1, 1, 1), 4, integers
    yield (3, 2, 0), 2, integers


def _long(loops: tuple[int, ...], least: int, most: int) -> int:
    """A length of which each loop makes two passes or more, a multiple of 16 and, if it can be, of a tile."""
    length = max([least, *(2 * each for each in loops if 2 * each <= most)])
    tile = max([16, *(each for each in loops if each % 16 == 0 and each <= least)])
    return round_up(length, tile)


def _drawn_shape(rng: np.random.Generator, bm: int, bn: int) -> Shape:
    m, n = (int(rng.integers(1, 2 * size + 40)) for size in (bm, bn))
    return m, n, min(int(2 ** rng.uniform(0, 11)), max(1, _MOST_PRODUCTS // (m * n)))


def _several_tiles(problem: GemmProblem, config: TileConfig) -> GemmProblem:
    """*problem* with a size that gives a lone work-group a whole tile, then one at an edge. K has as many
    blocks as an end of a tile needs that overlaps the next one (cl/nvidia/wgmma_drain.cl).
    """
    tile = (config.bn, config.bm) if config.option("swapped") else (config.bm, config.bn)
    return resized(problem, tile[0], tile[1] + 16, 8 * config.bk + 1 if problem.k else 0)


def _near(problem: GemmProblem) -> Iterator[GemmProblem]:
    """*problem* with lengths of its own up to a cap, for kernels whose programs depend on sizes."""
    own = (problem.m, problem.n, problem.k)
    near = {tuple(map(min, own, caps)) for caps in itertools.product(_CAPS, repeat=3)}
    for m, n, k in sorted(near, key=lambda size: (size[0] * size[1] * (size[2] + 1), size)):
        if max(m * n, m * k, k * n) <= _MAX_ELEMENTS and m * n * k <= _MAX_WORK:
            yield resized(problem, m, n, k)


@quietly
def wrong_copy(queue: Any, program: Program) -> str | None:
    """What is wrong with *program* on *queue*'s device, if it copies operands or activates what was checked,
    or None. Some drivers compile a kernel only when it is launched. Raises as a product does.
    """
    if program.source != COPY:
        return None
    _, rows, columns = _COPIED
    source_strides, target_strides = (rows * columns * 2 + 5, 2, 2 * rows), (-rows * columns - 3, columns, 1)
    types = str(program.define("A_TYPE")), str(program.define("OUT_TYPE"))
    soft = bool(program.define("SOFT_FLOAT64"))
    activation = ACTIVATIONS[int(program.define("ACTIVATION") or 0)]
    copy = Copy(_COPIED, types[0], source_strides, types[1], target_strides)
    source = Placed.of(_COPIED, source_strides, types[0], _LEAD, 0)
    target = Placed.of(_COPIED, target_strides, types[1], _LEAD, 0)
    source.view[...] = _copied_numbers(source.view.dtype, target.view.dtype, activation)
    target.memory[...] = FILL
    device = info_of(queue)
    where = ("a", "a_offset"), ("out", "out_offset"), "batch_offsets"
    launch = copy_launch(copy, *where, device, soft, activation)
    tables = {"batch_offsets": batch_table(_COPIED[:1], (source_strides[:1], target_strides[:1]))}
    work = Work((launch,), tables=tables)
    got, clean = computed(queue, device, work, {"a": source, "out": target})
    # A sum of NaN and others is NaN in each part.
    own, other = (parts_of(x) for x in (got, _converted(source.view, got.dtype)))
    what, same = "the copy of an operand", np.array_equal(own, other, equal_nan=True)
    if activation != "none":
        what, same = activation, _is_activated(got, source.view, activation)
    return None if clean and same else f"{what} from {types[0]} to {types[1]} is wrong on this device"


def _is_activated(got: Array, x: Array, activation: str) -> bool:
    right = reference.activate(x, ACTIVATIONS.index(activation))
    u, of_result = (reference.unit_roundoff(each.dtype) for each in (x, got))
    error = abs(got.astype(np.float64) - right) - reference.NETLIB_RATIO * u
    same = (got == right) | (np.isnan(got) & np.isnan(right))
    return bool((same | (error <= 2 * of_result * abs(right))).all())


def _copied_numbers(source: np.dtype[Any], target: np.dtype[Any], activation: str) -> Array:
    """Numbers over the range of integers; floats of few digits, with infinity and NaN where these exist."""
    rng = np.random.default_rng(20)
    if source.kind in "iu":
        few = rng.integers(0 if source.kind == "u" else -100, 100, _COPIED)
        return np.where(rng.random(_COPIED) < 0.5, few.astype(source), over_the_range(rng, _COPIED, source))
    if source.kind == "b" or target.kind in "iu":
        return rng.integers(0 if target.kind == "u" else -3, 100, _COPIED)
    x = rng.standard_normal(_COPIED, np.float32).astype(np.complex64 if source.kind == "c" else np.float32)
    if source.kind == target.kind == "c":
        x.imag = rng.standard_normal(_COPIED)
    x[..., 1], x[..., 3], x[..., 5], x[..., 7] = np.inf, np.nan, 0, -np.inf
    if activation not in EXACT_ACTIVATIONS:  # of an infinity formulas give other numbers
        x[np.isinf(x)] = -7
    return x


def _converted(x: Array, target: np.dtype[Any]) -> Array:
    return (x.real if x.dtype.kind == "c" and target.kind not in "cb" else x).astype(target)
