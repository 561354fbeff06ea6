"""`dequantized`: a first launch makes a dense matrix of quantised weights, and another family multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...formats import ORDERS
from ...problem.dtypes import ELEMENTS
from ...problem.gemm import MAX_ALIGN, GemmProblem
from .. import reordered
from ..accepts import GENERAL, IN_ORDER, Accepts
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Arg, Kernel, Launch, Loops, Work, Workspace, gemm_defines, round_up
from ..plain import Products
from ..weights import RUN, TYPES, format_of, matrices_of, no_weights, program_of

_ITEMS = 64  # of a work-group on a GPU, each with one run of weights
_SPAN = 128  # runs that a work-item of a CPU turns into numbers. The self-check reaches the third work-item
_OFFERED = 3  # configurations of each family
_RUN_SECONDS = 12e-9  # of a run on a compute unit of a CPU, besides memory. Ice Lake, PoCL 3.1
_TYPE_MACROS = {"A_TYPE", "B_TYPE", "C_TYPE", "BIAS_TYPE", "OUT_TYPE", "ACC_TYPE", "CONJ_A", "CONJ_B"}
_TYPE_MACROS |= {"REPRODUCIBLE", "SOFT_FLOAT64", "DOT_BYTES"}


class Dequantized(Kernel):
    """See cl/quantized/dequantize.cl. ``products``: the families that may multiply. A configuration is that
    of one of them, with the option ``product``, its number.
    """

    name = "dequantized"
    summary = "quantised weights, turned into numbers once, for a product by another kernel"
    accepts = Accepts(TYPES, GENERAL | IN_ORDER | {"b_format", "ragged"})

    def __init__(self, products: Sequence[Kernel]) -> None:
        self._products = Products(products)
        self.matrix_units = self._products.on_matrix_units
        self.options = tuple(sorted(self._products.options))

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if why := no_weights(problem, *ORDERS):
            return why
        if problem.ragged is not None and problem.ragged.axis == "k":
            return "quantised weights have groups along K, which is not divided among products"
        product = _inner(problem)
        reasons = [family.refuses(product, device) for family in self._products.families]
        return reasons[-1] if all(reasons) else None

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        product = _inner(problem)
        found = []
        for number, family in self._products.able(product, device):
            best = family.configs(product, device)[:_OFFERED]
            found += [config.with_options(product=number) for config in best]
        return found

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        family, own = self._products.of(config)
        lines, rates = matrices_of(problem) * problem.n, device.rates
        weights, size = lines * problem.k, ELEMENTS[problem.a_type].nbytes
        moved = lines * format_of(problem).row_nbytes(problem.k) + weights * size
        turning = weights / RUN * _RUN_SECONDS / device.units if device.is_cpu else 0.0
        seconds = rates.launch + max(rates.moved(moved), turning)
        if in_rows := reordered.moved(problem, device):
            seconds += rates.launch + rates.moved(in_rows)
        return seconds + family.estimate(_inner(problem), own, device)

    def out_of_order(self, problem: GemmProblem, config: TileConfig) -> str | None:
        family, own = self._products.of(config)
        return family.out_of_order(_inner(problem), own)

    def arithmetic(self, config: TileConfig) -> str:
        return f"weights turned into numbers, multiplied by {self._products.of(config)[0].name}"

    def checked_as(self, config: TileConfig) -> tuple[TileConfig, ...]:
        family, own = self._products.of(config)
        number = config.option("product")
        return tuple(one.with_options(product=number) for one in family.checked_as(own))

    def checked_on(self, device: DeviceInfo) -> tuple[DeviceInfo, ...]:
        families = self._products.families
        return tuple(dict.fromkeys(one for family in families for one in family.checked_on(device)))

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        family, own = self._products.of(config)
        found = family.loops(_inner(problem), own)
        return replace(found, k=(*found.k, _SPAN * RUN))

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return self._products.violations(_inner(problem), config, device)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        family, own = self._products.of(config)
        rows, product = reordered.InRows.of(problem, device), _inner(problem)
        work = family.launches(product, own, device)
        numbers = matrices_of(problem) * problem.n * product.ldb
        space = Workspace("weights", max(1, numbers * ELEMENTS[problem.a_type].nbytes))
        names: dict[Arg, Arg] = {"b": space.symbol, "b_offset": np.int64(0)}
        multiplied = tuple(launch.renamed(names) for launch in work.launches)
        turned = rows.read([_turned(rows.problem, product.ldb, space, device)])
        return replace(
            work,
            launches=(*rows.launches, *turned, *multiplied),
            workspace=(*rows.workspace, space, *work.workspace),
        )


def _inner(problem: GemmProblem) -> GemmProblem:
    """The product with the weights as numbers: N rows of them, each at an aligned address; and so of each
    group."""
    ldb = round_up(problem.k, MAX_ALIGN // ELEMENTS[problem.a_type].nbytes)
    ragged = problem.ragged and replace(problem.ragged, stride=problem.n * ldb)
    plain = replace(problem, b_type=problem.a_type, b_format="", trans_b=True, ldb=ldb, b_align=MAX_ALIGN)
    return replace(plain, ragged=ragged)


def _turned(problem: GemmProblem, ld: int, space: Workspace, device: DeviceInfo) -> Launch:
    """The launch that turns weights into numbers."""
    own = problem.a_type
    plain = replace(problem, reproducible=False, soft_fma=False, out_type=own, c_type=own, bias_type=own)
    defines = tuple(one for one in gemm_defines(plain) if one[0] in _TYPE_MACROS)
    runs = problem.k // RUN
    span, items = (min(runs, _SPAN), 1) if device.is_cpu else (1, device.group_items(_ITEMS))
    size = (round_up(max(1, -(-runs // max(1, span))), items), problem.n, matrices_of(problem))
    apart = problem.ragged.stride if problem.ragged else 0
    extra = (np.int64(problem.ldb), np.int64(apart), space.symbol, np.int64(ld), np.int32(span))
    args = (np.int32(problem.n), np.int32(problem.k), "b", "b_offset", *extra)
    program = program_of(problem, "quantized/dequantize.cl", (*defines, ("ITEMS", items)))
    return Launch(program, "dequantize", size, (items, 1, 1), args, packs="b")
