"""How long `packed` and `matvec` take: multiply-adds, those past the result's edge too, and bytes moved."""

from __future__ import annotations

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import round_up
from .blocking import PAGE
from .packed_shape import (
    can_read_b,
    crosses_lines,
    cut,
    moves_whole,
    must_pack,
    packs_a,
    packs_b,
    packs_inside,
    padded_products,
    partial_sums,
    parts,
)

_FRACTION = 0.85  # of the rate of multiply-adds. Zen 4 and Zen 5, docs/kernels/packed.md
_FEW_FRACTION = 0.8  # of that: dot products of a few rows. Zen 4, docs/kernels/packed.md
# Steps of K in whose time an element is stored across the order of its tile: turned in registers (Zen 5), or
# alone, one of 4 bytes (Zen 4)
_TURNED, _TURNED_ALONE = 8, 32
_AWKWARD = 1.4  # an operand in place that must_pack names, 1000 to 2000 cubed on Zen 4
# A step with vectors of B that cross cache lines, relative to one without, by the vector's share of a line:
# Zen 4, and a Xeon of family 6, model 167
_CROSSING = {1.0: 1.13, 0.5: 1.08}
# Zen 5 hides that. So where B may stay in place, packing it in each work-group must promise so much
_DOUBT = 1.06
# Seconds that a column of a transposed A in place adds to a step of K: if A exceeds half of the second level,
# and if its rows displace each other in the cache. That Xeon; on Zen 4 multiply-adds hide most of it
_FAR_COLUMN, _DISPLACED_COLUMN = 0.6e-9, 2.5e-9
# Bytes a second that a compute unit reads and writes when it packs, when it turns rows into columns too
# (Zen 4, that Xeon), and when a work-group packs what it uses, from and to its caches (Zen 5)
_PACKED, _TURNING, _INSIDE = 15e9, 10e9, 25e9
_FAR_PACKED = 1.7  # times as long take the bytes of panels that the caches do not hold


def packed_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
    """Seconds of the launches of `packed`, of *problem* as the kernel sees it."""
    rates, pieces = device.rates, parts(problem, config, device)
    tiles = cut(problem, config, device, pieces[0])
    groups = tiles.rows * tiles.columns * config.split_k * pieces[0].entries
    products = padded_products(problem, config, device)
    if config.named.get("swapped"):
        products += _turned_steps(problem) * problem.m * problem.n * problem.batch
    rate = rates.multiply_adds(problem.acc_type) * _FRACTION * min(1.0, groups / device.units)
    packed, inside = (packs_a(problem, config), packs_b(problem, config)), packs_inside(problem, config)
    slower = _step_with_loads(problem, config, packed, inside, device)
    seconds = together(products / rate * slower, rates.moved(problem.nbytes))
    sums = 2 * partial_sums(problem, config).workspace.nbytes if config.split_k > 1 else 0
    launches = (1 + packed[0]) * len(pieces) + (packed[1] and not inside) + (config.split_k > 1)
    copied = _packing_seconds(problem, config, (packed[0], packed[1] and not inside), device)
    if inside:
        copied += _inside_seconds(problem, config, device, tiles.rows) / min(1.0, groups / device.units)
    return launches * rates.launch + rates.group + seconds + copied + rates.moved(sums)


def _step_with_loads(
    problem: GemmProblem, config: TileConfig, packed: tuple[bool, bool], inside: bool, device: DeviceInfo
) -> float:
    """Time of a step of K in a register tile, relative to that of its multiply-adds: operands in place."""
    slower, wishes = 1.0, must_pack(problem, config, device)
    if wishes[0] > packed[0] or wishes[1] > packed[1]:  # wished for and not done
        slower = _AWKWARD
    elif inside and can_read_b(problem, config) and not wishes[1]:
        slower = _DOUBT
    elif not packed[1] and crosses_lines(problem, config):
        slower = _CROSSING.get(config.vec * problem.sums.nbytes_of_real / device.caches.line, 1.0)
    if problem.trans_a and not packed[0]:
        rate = device.rates.multiply_adds(problem.acc_type) * _FRACTION / device.units
        slower += _column_seconds(problem, device) / (config.tm * config.tn / rate)
    return slower


def _column_seconds(problem: GemmProblem, device: DeviceInfo) -> float:
    """Seconds that loading a column of a transposed A in place adds to a step of K."""
    row = abs(problem.lda) * ELEMENTS[problem.a_type].nbytes
    if row % PAGE == 0:
        return _DISPLACED_COLUMN
    return _FAR_COLUMN if row * problem.k > device.caches.l2 // 2 else 0.0


def _turned_steps(problem: GemmProblem) -> float:
    """Steps of K in whose time an element of the transposed product is stored."""
    vectors = moves_whole(problem.out_type, problem) and not (problem.extras or problem.activation != "none")
    return _TURNED if vectors else _TURNED_ALONE * 4 / problem.sums.nbytes_of_real


def _packing_seconds(
    problem: GemmProblem, config: TileConfig, packed: tuple[bool, bool], device: DeviceInfo
) -> float:
    """Seconds that the launches which pack A and B take, without what each launch costs."""
    line = problem.k * problem.sums.nbytes * problem.batch  # bytes of a row or column in all
    a = line * round_up(problem.m, config.tm) * packed[0]
    b = line * round_up(problem.n, config.tn) * packed[1]
    outside = max(0.0, 1 - device.rates.cache_size / max(1, a + b))
    seconds = 2 * (a / _PACKED + b / (_TURNING if problem.trans_b else _PACKED)) / device.units
    return seconds * (1 + (_FAR_PACKED - 1) * outside)


def _inside_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo, rows: int) -> float:
    """Seconds that work-groups take to pack B, each of so many *rows* of macro-tiles for itself."""
    nbytes = round_up(problem.n, config.tn) * problem.k * problem.sums.nbytes * problem.batch * rows
    return 2 * nbytes / (_INSIDE if moves_whole(problem.b_type, problem) else _TURNING) / device.units


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
    return ELEMENTS[problem.b_type if problem.m <= problem.n else problem.a_type].nbytes
