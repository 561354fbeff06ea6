"""`matvec`: a matrix times a vector, or a few, on CPU devices, at the speed of memory."""

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
from ..interface import Arg, Loops, Work, gemm_launch, gemm_program, round_up, vector_defines
from .packed_shape import sum_size
from .pieces import FRACTION, OF_MEMORY, CpuKernel, range_sums, stack_seconds, unfit_vectors

# Bytes of sums that a work-group keeps in local memory; they fit the first-level cache
_SUM_BYTES = 1 << 14
_GROUPS_A_UNIT = 2  # work-groups for each compute unit
_STACK_GROUPS_A_UNIT = 6  # at least, for a long stack. The self-check has 20 products for one unit
_PRODUCT = 8e-9  # seconds of a unit for a further product of a work-group. Zen 5, PoCL 3.0, 2026-11-29
_LEAST_K = 64  # fewest elements of K in a range
_LEAST_J = 8  # fewest rows or columns of the matrix in a work-group
# Fewest bytes of a row's piece, from the second-level caches (Zen 4) and from memory: a page, within which
# processors prefetch (Zen 5 and a Xeon of 16 cores). docs/kernels/packed.md
_LEAST_PIECE, _LEAST_FAR_PIECE = 512, 4096
_MOST_VECTORS = 64  # with more, packing the matrix pays
# Most rows of the matrix that one vector is multiplied with at a time. Zen 4, docs/kernels/packed.md
_ROWS_OF_ONE = 8
_AT_ONCE = 8  # as in matvec.cl
_SINGLE = 8  # times as long as a multiply-add in registers takes one in memory. Assumed, not fitted
_APART = 2  # multiply-adds of single numbers in the time that a number of a vector with gaps takes. Zen 5
_FEW_FRACTION = 0.8  # of FRACTION: dot products of a few rows. Zen 4, docs/kernels/packed.md


class Matvec(CpuKernel):
    """See cl/cpu/matvec.cl. BN is the most results that a work-group sums in local memory, VEC the numbers in
    a vector register, SPLIT_K the number of ranges of K. Along K, TM rows of the matrix are multiplied with
    TN vectors at a time.
    """

    name = "matvec"
    summary = "a matrix times a vector, or times a few along K, each element read once, for CPU devices"
    accepts = Accepts(fields=GENERAL | IN_ORDER)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        few = min(problem.m, problem.n)
        if few > _MOST_VECTORS:
            return f"neither M nor N is at most {_MOST_VECTORS}: {problem.m} x {problem.n}"
        if few > 1 and not (_by_rows(problem) and _x_stride(problem) == 1):
            return (
                f"neither M nor N is 1, and not both operands are stored along K: {problem.m} x {problem.n}"
            )
        return None

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """The matrix is read once, unless the rows that several vectors share exceed their cache."""
        rates, few, length = device.rates, min(problem.m, problem.n), max(problem.m, problem.n)
        groups = -(-length // _piece(problem, config, device)) * config.split_k
        sums = sum(space.nbytes for space in range_sums(problem, config.split_k, groups * problem.batch))
        rate = rates.multiply_adds(problem.acc_type) * FRACTION
        if few > 1:  # the ends of dot products: the numbers of a vector are added one by one
            rate *= _FEW_FRACTION * min(1.0, groups * problem.batch / device.units)
        steps = problem.k + (config.vec**2 if few > 1 else 0)
        products = round_up(few, config.tn) * length * steps * problem.batch / rate
        side_by_side = (problem.k if _by_rows(problem) else length) * problem.sums.planes
        single = side_by_side < config.vec  # numbers are added one after the other
        products *= _SINGLE * config.vec if single else 1
        if _has_gaps(problem):
            products += _APART * config.vec * -(-length // config.tm) * problem.k * problem.batch / rate
        again = config.tm * problem.k * _matrix_size(problem) > device.caches.l2 // 2
        passes = -(-few // config.tn) if again else 1
        nbytes = problem.nbytes + (passes - 1) * length * problem.k * _matrix_size(problem) * problem.batch
        seconds = rates.launch + rates.group * max(1.0, config.split_k / device.units)
        span = _span(problem, config, device)
        seconds += stack_seconds(groups, problem, device) / span
        products += _PRODUCT * (problem.batch - problem.batch // span) / device.units
        moved = rates.moved(nbytes) / (OF_MEMORY if single and not _by_rows(problem) else 1)
        return seconds + together(products, moved) + rates.moved(2 * sums)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        size = problem.sums.nbytes
        rows, vectors = _dots(problem, device)
        lanes = device.vector_bits // 8 // problem.sums.nbytes_of_real
        config = TileConfig(bn=_SUM_BYTES // size, tm=rows, tn=vectors, vec=lanes)
        one = min(problem.m, problem.n) == 1 and not problem.reproducible
        ranges = _split_k(problem, config, device) if one else 1
        found = [replace(config, split_k=ranges)]
        by_columns = _columns_of_a_group(problem, config, device)
        if by_columns:
            found.insert(0, replace(config, bn=by_columns))
        return [c for c in found if not self.violations(problem, c, device)]

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = unfit_vectors(config, problem.sums.nbytes_of_real, device.vector_bits)
        if config.bn * problem.sums.planes % config.vec or config.split_k < 1:
            reasons.append(f"BN reals must be a multiple of VEC, SPLIT_K at least 1: {config}")
        if config.split_k > 1 and min(problem.m, problem.n) > 1:
            reasons.append(f"SPLIT_K must be 1 with several vectors: {config}")
        return reasons + config.violations(device, (1,), config.bn * sum_size(problem))

    def out_of_order(self, problem: GemmProblem, config: TileConfig) -> str | None:
        if problem.sums.planes > 1:
            return "adds products of real and of imaginary parts apart"
        if _by_rows(problem):
            return "adds the elements of a vector at the end of each row"
        return super().out_of_order(problem, config)

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        """Of several vectors TN at a time, of the matrix TM rows or BN results, and ranges of K."""
        long = (config.tm, config.bn)
        found = Loops((config.tn,), long, (config.vec * _AT_ONCE,))
        return found if _x_is_a(problem) else found.exchanged

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        split_k, length = config.split_k, max(problem.m, problem.n)
        defines = (
            *vector_defines(config, device), ("X_IS_A", int(_x_is_a(problem))), *config.macros("bn"),
            ("ROWS", config.tm), ("VECTORS", config.tn), ("X_GAPS", int(_has_gaps(problem))),
            ("SPLIT", int(split_k > 1)),
        )  # fmt: skip
        # matvec_rows has a program of its own where B is a single column, so that the self-check runs it
        named = replace(problem, trans_b=True) if _is_dot(problem) else problem
        program = gemm_program(named, "cpu/matvec.cl", defines)
        nc = _piece(problem, config, device)
        groups = -(-length // nc)
        span = _span(problem, config, device)
        sizes = map(np.int32, (nc, -(-problem.k // split_k), problem.batch, span))
        spaces = range_sums(problem, split_k, groups * problem.batch)
        extra: tuple[Arg, ...] = (*sizes, *(space.symbol for space in spaces))
        kernel = "matvec_rows" if _by_rows(problem) else "matvec_columns"
        size = (groups, split_k, -(-problem.batch // span))
        launch = gemm_launch(problem, program, kernel, size, (1, 1, 1), extra, together=True)
        return Work((launch,), spaces)


def _x_is_a(problem: GemmProblem) -> bool:
    """Whether A holds the vectors and B the matrix."""
    return problem.m <= problem.n


def _by_rows(problem: GemmProblem) -> bool:
    """Whether the matrix is stored along K."""
    if _is_dot(problem):
        return True
    return problem.trans_b if _x_is_a(problem) else not problem.trans_a


def _has_gaps(problem: GemmProblem) -> bool:
    """Whether rows of the matrix, stored along K, meet a vector that is not."""
    return _by_rows(problem) and _x_stride(problem) != 1


def _is_dot(problem: GemmProblem) -> bool:
    """Whether it is one dot product of two vectors without gaps, which no order of sums binds."""
    single = problem.m == problem.n == 1 and not problem.reproducible
    return single and not problem.trans_a and (problem.trans_b or problem.ldb == 1)


def _x_stride(problem: GemmProblem) -> int:
    if _x_is_a(problem):
        return problem.lda if problem.trans_a else 1
    return 1 if problem.trans_b else problem.ldb


def _dots(problem: GemmProblem, device: DeviceInfo) -> tuple[int, int]:
    """(rows of the matrix, vectors) that are multiplied at a time, so that few vectors leave none over."""
    few = min(problem.m, problem.n)
    if few == 1:
        return min(max(problem.m, problem.n), _ROWS_OF_ONE), 1
    vectors = min((4, 3, 2), key=lambda count: round_up(few, count))
    rows = 4 if device.vector_bits == 512 or vectors == 2 else 3  # 16 or 12 sums, of 32 or 16 registers
    return max(1, rows // problem.sums.planes), vectors


def _wanted(problem: GemmProblem, device: DeviceInfo) -> int:
    return -(-_GROUPS_A_UNIT * device.compute_units // problem.batch)


def _piece(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Results of each work-group: up to BN where local memory holds the sums, else about equally many."""
    length = max(problem.m, problem.n)
    if not _by_rows(problem):
        return min(config.bn, length)
    count = max(1, min(_wanted(problem, device), length // _LEAST_J))
    return round_up(-(-length // count), config.tm)


def _span(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Products of a stack that a work-group computes one after the other, along K."""
    if config.split_k > 1 or not _by_rows(problem):
        return 1
    return max(1, problem.batch // (_STACK_GROUPS_A_UNIT * device.compute_units))


def _columns_of_a_group(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    """Results of a work-group, so that each compute unit has as many columns of the matrix, and all of K.

    That needs no partial sums. 0 where the matrix comes from memory and pieces of its rows
    would be too short for the processor's prefetching, or where K is along the rows.
    """
    length = max(problem.m, problem.n)
    units = -(-device.compute_units // problem.batch)
    if _by_rows(problem) or units == 1:
        return 0
    count = round_up(-(-length // config.bn), units)
    columns = round_up(-(-length // count), config.vec)
    size = _matrix_size(problem)
    in_caches = length * problem.k * size <= device.caches.l2 * device.compute_units
    enough = columns * size >= (_LEAST_PIECE if in_caches else _LEAST_FAR_PIECE)
    return columns if enough or problem.reproducible else 0


def _split_k(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> int:
    pieces = -(-max(problem.m, problem.n) // _piece(problem, config, device))
    return max(1, min(_wanted(problem, device) // pieces, problem.k // _LEAST_K))


def _matrix_size(problem: GemmProblem) -> int:
    """Bytes of an element of the larger operand."""
    return ELEMENTS[problem.b_type if problem.m <= problem.n else problem.a_type].nbytes
