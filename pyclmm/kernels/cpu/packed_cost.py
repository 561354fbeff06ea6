"""How long `packed` and `matvec` take: multiply-adds, those past the result's edge too, and bytes moved."""

from __future__ import annotations

from ...problem.dtypes import dtype_of
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import round_up
from .packed_shape import (
    cut,
    packs_a,
    packs_b,
    padded_products,
    partial_sums,
    parts,
    preferred_packing,
    real_size,
)

_FRACTION = 0.85  # of the rate of multiply-adds. Zen 4 and Zen 5, docs/kernels/packed.md
_FEW_FRACTION = 0.8  # of that: dot products of a few rows. Zen 4, docs/kernels/packed.md
_BOTH_IN_PLACE = 1.07  # a transposed A beyond the second level, and B in place too: Zen 4
_TURNED = 128  # bytes of a row of A, in whose time an element is stored across the order of its tile: Zen 4
_AWKWARD = 1.4  # an operand in place that packing would serve better, 1000 to 2000 cubed on Zen 4


def packed_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Seconds of the launches of `packed`, of *problem* as the kernel sees it."""
    rates, pieces = device.rates, parts(problem, config, device)
    tiles = cut(problem, config, device, pieces[0])
    groups = tiles.rows * tiles.columns * config.split_k * pieces[0].entries
    products = padded_products(problem, config, device)
    if config.option("swapped"):
        products += _TURNED / real_size(problem) * problem.m * problem.n * problem.batch
    rate = rates.multiply_adds(problem.acc_type) * _FRACTION * min(1.0, groups / device.units)
    packed = packs_a(problem, config), packs_b(problem, config)
    wanted = preferred_packing(problem, config, device)
    awkward = any(wish and not done for wish, done in zip(wanted, packed, strict=True))
    slower = _AWKWARD if awkward else _BOTH_IN_PLACE if _far_apart(problem, packed, device) else 1.0
    seconds = together(products / rate * slower, rates.moved(problem.nbytes))
    size = dtype_of(problem.acc_type).itemsize * problem.batch
    rows, columns = round_up(problem.m, config.tm) * packed[0], round_up(problem.n, config.tn) * packed[1]
    copied = 2 * problem.k * size * (rows + columns)
    sums = 2 * partial_sums(problem, config).workspace.nbytes if config.split_k > 1 else 0
    launches = (1 + packed[0]) * len(pieces) + packed[1] + (config.split_k > 1)
    return launches * rates.launch + rates.group + seconds + rates.moved(copied) + rates.moved(sums)


def _far_apart(problem: GemmProblem, packed: tuple[bool, bool], device: DeviceInfo) -> bool:
    """Whether both operands are read in place, and A across its rows, from beyond the second level."""
    nbytes = problem.m * problem.k * dtype_of(problem.a_type).itemsize
    return problem.trans_a and not any(packed) and nbytes > device.caches.l2


def matvec_seconds(
    problem: GemmProblem, config: TileConfig, device: DeviceInfo, groups: int, sum_bytes: int
) -> float:
    """Seconds of the launches of `matvec` in so many work-groups of one vector's length, with partial sums.

    The matrix is read from memory once, unless the rows that several vectors share exceed their cache.
    """
    rates, few, length = device.rates, min(problem.m, problem.n), max(problem.m, problem.n)
    rate = rates.multiply_adds(problem.acc_type) * _FRACTION
    if few > 1:  # the ends of dot products: the numbers of a vector are added one by one
        rate *= _FEW_FRACTION * min(1.0, groups * problem.batch / device.units)
    steps = problem.k + (config.vec**2 if few > 1 else 0)
    products = round_up(few, config.tn) * length * steps * problem.batch / rate
    again = config.tm * problem.k * matrix_size(problem) > device.caches.l2 // 2
    passes = -(-few // config.tn) if again else 1
    nbytes = problem.nbytes + (passes - 1) * length * problem.k * matrix_size(problem) * problem.batch
    launches = 1 if config.split_k == 1 else 2
    seconds = launches * rates.launch + rates.group * max(1.0, config.split_k / device.units)
    return seconds + together(products, rates.moved(nbytes)) + rates.moved(2 * sum_bytes)


def matrix_size(problem: GemmProblem) -> int:
    """Bytes of an element of the larger operand."""
    return dtype_of(problem.b_type if problem.m <= problem.n else problem.a_type).itemsize
