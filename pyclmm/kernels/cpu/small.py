"""`small`: products of a few rows and columns, in long stacks or along a long K, on CPU devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import Arg, Loops, Work, gemm_launch, gemm_program, vector_defines
from .pieces import OF_MEMORY, CpuKernel, range_sums, side, unfit_vectors

_SIDE, _LARGEST = 4, 16  # of the tile: where there is more than one row, or column, and at most
_GROUPS_A_UNIT = 4  # work-groups for each compute unit, so that all end at about the same time
_LEAST_K, _MOST_SUMS = 4096, 4096  # fewest steps of K in a range, and most results of which K is divided
# Multiply-adds in the time of one step of a chain of sums, and in that of a load, behind which they hide;
# and the steps of K that a product takes besides its own. Zen 5, 2026-11-30
_CHAIN, _LOAD, _MORE_STEPS = 8, 1.25, 16
# An operand beyond the cache that is stored across K takes the time of as many bytes more for each of its
# own as its rows are pages of memory apart, and of _FAR at most. Zen 5, 2026-11-30
_PAGE, _FAR = 4096, 4.0
# Sums of which a result is made, at most, or results that are computed together: as fast as 8 on Zen 5
_CHAINS = 4
_IN_FLIGHT = 8  # sums in registers, for which those of a result are fewer
_LEAST_CHAINED_K = 32  # for which they are of one product, whose memory is read in order. Zen 5, 2026-11-29
_COLUMNS = (16, 8, 4)  # of B, the numbers of a vector
_GAPS = {1: 0, 0: 2}  # GAPS_A and GAPS_B for neighbours so many elements apart; 1 for others
_VECTORS = (8, 4, 2, 1)  # of sums, where products are computed together: the most that a row of the stack has


class Small(CpuKernel):
    """See cl/cpu/small.cl. TM x TN is the tile that is summed in registers, SPLIT_K the number of ranges
    of K, VEC the numbers in a vector: of TN columns of B, or of neighbours in the stack that are neighbours
    in memory.
    """

    name = "small"
    summary = "small products one after the other in a work-item, or one along a long K, for CPU devices"
    accepts = Accepts(fields=GENERAL | IN_ORDER)
    has_barriers = False

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        tm, tn = (side(length, _SIDE) for length in (problem.m, problem.n))
        vec = _lanes(problem, device)
        if vec > 1 and not problem.is_side_by_side:
            widest = 2 * vec if _is_few_of_a_long_k(problem) else vec  # else each N would have a program
            tn = problem.n if problem.n < min(widest, _LARGEST + 1) else vec
        wanted = _GROUPS_A_UNIT * device.compute_units // max(1, problem.batch)
        config = TileConfig(tm=tm, tn=tn, vec=vec)
        whole = problem.reproducible or problem.m * problem.n > _MOST_SUMS or _across(problem, config) > 1
        ranges = 1 if whole else max(1, min(wanted, problem.k // _LEAST_K))
        found = [replace(config, split_k=ranges)]
        return [c for c in found if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """The loads of each step of K, behind which multiply-adds hide, or the time of chains of sums."""
        across = _across(problem, config)
        rates, (groups, *_) = device.rates, _chunks(problem, across, device)
        tiles = -(-problem.m // config.tm) * -(-problem.n // config.tn) * problem.batch
        lanes = max(1, device.vector_bits // 8 // problem.sums.nbytes_of_real)
        steps = problem.k + _MORE_STEPS * config.split_k
        rate = rates.multiply_adds(problem.acc_type) / lanes
        rate *= min(1.0, groups * config.split_k / device.units)
        sums, loads = config.tm * config.tn, config.tm + -(-config.tn // config.vec)
        chains = _chains(problem, config)
        chain = _CHAIN / (chains if _in_k(problem, config) else min(chains, problem.batch))
        step = sums / lanes if across > 1 else max(chain, _LOAD * loads)
        products = tiles * steps * step / rate
        moved = rates.moved(problem.nbytes + _waits(problem, rates.cache_size))
        moved += _again(problem, config, device) / rates.cache
        moved /= OF_MEMORY if sums == across == 1 else 1
        return rates.launch + rates.group + together(products, moved)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = []
        if not (1 <= config.tm <= _LARGEST and 1 <= config.tn <= _LARGEST and config.split_k >= 1):
            reasons.append(f"TM and TN must be 1 to {_LARGEST}, SPLIT_K at least 1: {config}")
        if config.vec > 1:
            reasons += _misfits(problem, config, device)
        return reasons + config.violations(device, (1,), 0)

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        return Loops((config.tm,), (config.tn,), (1,))

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        split_k, across = config.split_k, _across(problem, config)
        groups, span, inner, parts = _chunks(problem, across, device)
        gaps = (_GAPS.get(strides[-1], 1) if across > 1 else 0 for strides in problem.batch_strides[:2])
        defines = (
            *vector_defines(config, device), *config.macros("tm", "tn"), ("SPLIT", int(split_k > 1)),
            ("ACROSS", across), *zip(("GAPS_A", "GAPS_B"), gaps, strict=True),
            ("CHAINS", _chains(problem, config)), ("IN_K", int(_in_k(problem, config))),
        )  # fmt: skip
        program = gemm_program(problem, "cpu/small.cl", defines)
        sizes = map(np.int32, (problem.batch, inner, parts, span, -(-problem.k // split_k)))
        spaces = range_sums(problem, split_k, groups)
        extra: tuple[Arg, ...] = (*sizes, *(space.symbol for space in spaces))
        launch = gemm_launch(
            problem, program, "matmul_small", (groups, split_k), (1, 1), extra, together=True
        )
        return Work((launch,), spaces)


def _again(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Bytes that tiles after the first read again, where a product's range of K exceeds the first cache."""
    of_a, of_b = (
        length * problem.k * ELEMENTS[name].nbytes
        for length, name in ((problem.m, problem.a_type), (problem.n, problem.b_type))
    )
    if of_a + of_b <= device.caches.l1 * config.split_k:
        return 0.0
    down, across = -(-problem.m // config.tm), -(-problem.n // config.tn)
    return float(((across - 1) * of_a + (down - 1) * of_b) * problem.batch)


def _waits(problem: GemmProblem, cache_size: float) -> float:
    """Bytes in whose time a work-item waits for A and B, where each step of K needs a far line."""
    operands = (
        (problem.trans_a, problem.m, problem.lda, problem.a_type),
        (not problem.trans_b, problem.n, problem.ldb, problem.b_type),
    )
    total = 0.0
    for is_across, length, pitch, name in operands:
        itemsize = ELEMENTS[name].nbytes
        nbytes = length * problem.k * itemsize
        if is_across and nbytes > cache_size:
            total += nbytes * min(_FAR, pitch * itemsize / _PAGE)
    return total * problem.batch


def _is_few_of_a_long_k(problem: GemmProblem) -> bool:
    """Whether it is few sums, each of many elements."""
    return problem.m <= _SIDE and problem.k >= _LEAST_CHAINED_K


def _lanes(problem: GemmProblem, device: DeviceInfo) -> int:
    """The numbers in a vector of elements that are side by side in memory; 1 if there are too few."""
    lanes = device.vector_bits // 8 // problem.sums.nbytes_of_real
    if problem.is_side_by_side:
        few = problem.has_c or problem.batch_shape[-1] * problem.sums.planes < lanes
        return 1 if few or problem.soft_fma else lanes
    if problem.trans_b or problem.sums.planes > 1 or problem.soft_fma:
        return 1
    beyond = problem.k >= _LEAST_CHAINED_K and problem.n > 1
    beyond = beyond and problem.ldb >= max(1, _COLUMNS[-1] - problem.n)
    widest = max(problem.n, _COLUMNS[-1] if beyond else 1)
    return next((n for n in _COLUMNS if n <= min(widest, lanes)), 1)


def _misfits(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
    """Why vectors of *config* do not fit. Empty if they do."""
    reasons = unfit_vectors(config, problem.sums.nbytes_of_real, device.vector_bits, (1, 2, 4, 8, 16))
    if problem.soft_fma:
        reasons.append("there are no vectors of fused multiply-adds made of integers: VEC must be 1")
    if problem.is_side_by_side:
        if problem.has_c or config.split_k > 1 or _across(problem, config) == 1:
            reasons.append("products side by side need VEC 1 with C, with SPLIT_K, or if they are few")
    elif problem.trans_b or problem.sums.planes > 1:
        reasons.append("VEC needs real numbers and B stored by rows, or must be 1")
    elif config.tn > problem.n or config.vec - config.tn > max(0, problem.ldb):
        reasons.append(
            f"VEC goes beyond TN columns by a row of B at most, and TN must be at most N: {config}"
        )
    return reasons


def _in_k(problem: GemmProblem, config: TileConfig) -> bool:
    """Whether each sum is several, of every so many steps of K: few would wait for each addition to end.

    A lone one may be computed together with neighbours in the stack. It is several where K is long, and its
    elements are nearer to each other than neighbours are.
    """
    if problem.reproducible or _across(problem, config) > 1:
        return False
    if config.split_k > 1 or config.tm * config.tn > 1:
        return config.split_k > 1 or problem.k >= _LEAST_CHAINED_K
    steps = problem.lda if problem.trans_a else 1, 1 if problem.trans_b else problem.ldb
    nearest = (strides[-1:] for strides in problem.batch_strides[:2])
    apart = all(abs(step) < abs(at) for step, near in zip(steps, nearest, strict=True) for at in near if at)
    return apart and problem.k >= _LEAST_CHAINED_K


def _chains(problem: GemmProblem, config: TileConfig) -> int:
    """Sums of which each result is made, or how many lone results are computed together."""
    sums = config.tm * -(-config.tn // config.vec) * problem.sums.planes
    if _in_k(problem, config):
        return max(1, min(_CHAINS, _IN_FLIGHT // sums))
    return _CHAINS if config.tm * config.tn * config.vec == 1 else 1


def _across(problem: GemmProblem, config: TileConfig) -> int:
    """How many products are computed together: 1 where those side by side in the stack are not in memory."""
    if not problem.is_side_by_side or config.vec == 1:
        return 1
    lanes = config.vec // problem.sums.planes
    return next((n * lanes for n in _VECTORS if n * lanes <= problem.batch_shape[-1]), 1)


def _chunks(problem: GemmProblem, across: int, device: DeviceInfo) -> tuple[int, int, int, int]:
    """Work-groups, parts of the stack for each, products in a row of it, and parts of a row."""
    wanted = _GROUPS_A_UNIT * device.compute_units
    inner = problem.batch_shape[-1] if across > 1 else 1
    rows = problem.batch // inner
    parts = max(1, min(inner // across, -(-wanted // max(1, rows))))
    span = max(1, -(-rows * parts // wanted))
    return -(-rows * parts // span), span, inner, parts
