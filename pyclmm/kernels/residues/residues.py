"""`residues`: float64 products by 8-bit integer products, which another family computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, log2

import numpy as np

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import GATE, Arg, Kernel, Launch, Work, Workspace, round_up
from .decision import (
    PLAIN,
    Plain,
    choose,
    launch,
    lost_bits,
    may_return,
    measure,
    refusal,
    spaces,
    with_plain,
)
from .moduli import COMPLEX, MOST, REAL, Moduli

_CONVERT_ITEMS, _TILE_LINES, _TILE_K = 256, 16, 128  # of cl/residues/convert.cl
_COLUMNS = 4  # of cl/residues/combine.cl
_COMBINE = (64, 2)  # its work-groups
_PITCH = 128  # elements; lines of residues are multiples
_MOST_BLOCK = (1 << 17) - _PITCH  # elements of K whose products fit 32 bits (cl/include/moduli.h)
_MOST_BITS = 62  # of an element: cl/residues/convert.cl makes whole numbers of 64 bits
# Fraction of the rate of memory that the launches besides the products reach. H200
_MOVED = 0.5


class Residues(Kernel):
    """See cl/residues/residues.h. ``products``: the families that may multiply residues; ``plain``: those
    that may compute the product where residues do not serve. A configuration is that of the first, with
    options: ``product`` and ``plain``, the numbers of the families; ``plain_bm`` and so on, the configuration
    of the plain one.
    """

    name = "residues"
    summary = 'float64 and complex128 with precision="high", by 8-bit integer products'

    def __init__(self, products: Sequence[Kernel], plain: Sequence[Kernel]) -> None:
        self._products, self._plain = tuple(products), Plain(plain)
        self.matrix_units = any(kernel.matrix_units for kernel in products)

    def supports(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return refusal(problem, device) or self._plain.refusal(problem, device)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        plain = self._plain.best(problem, device)
        if plain is None:
            return []
        inner = _inner(problem)
        for number, family in enumerate(self._products):
            if may_return(family, device) and family.supports(inner, device) is None:
                found = [c for c in family.configs(inner, device) if c.split_k < 2]  # sums are reduced once
                found = [c for c in found if not family.violations(inner, c, device)]
                if found:
                    return [with_plain(_for(config, number), *plain) for config in found]
        return []

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        inner, planes = _inner(problem), _moduli(problem).planes
        expected = expected_count(problem)
        count = (expected or MOST) * planes
        blocks, rates = len(_blocks(problem)), device.rates
        computed = replace(
            inner,
            batch_shape=(problem.batch * blocks * count,),
            batch_strides=((0,),) * 4,
            moduli=inner.moduli[:count],
        )
        product = self._products[config.option("product")]
        seconds = product.estimate(computed, _product_config(config), device)
        lines, results = (inner.m + inner.n) * problem.batch, inner.m * inner.n * problem.batch
        moved = lines * problem.k * (2 * 8 * planes + count) + results * (count * blocks + 8 * planes)
        seconds += 5 * rates.launch + rates.moved(moved) / _MOVED
        if expected:
            return seconds
        return seconds + self._plain.estimate(problem, config, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        number = config.option("product")
        if number >= len(self._products):
            return [f"there is no family number {number}"]
        product, inner = self._products[number], _inner(problem)
        refused = product.supports(inner, device)
        if refused:
            return [refused]
        return [
            *product.violations(inner, _product_config(config), device),
            *self._plain.violations(problem, config, device),
            *TileConfig().violations(device, (_CONVERT_ITEMS,), 8 * _TILE_LINES * (_TILE_K * 9 // 8 + 1)),
        ]

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        inner = _inner(problem)
        own = _moduli(problem)
        half_bits = [own.half_bits(n) for n in range(1, MOST + 1)]
        plain = self._plain.launches(problem, config, device)
        product = self._products[config.option("product")].launches(inner, _product_config(config), device)
        launches = (
            measure(problem, device),
            choose(problem, device, half_bits, own.planes, _MOST_BITS),
            *plain.launches,
            _convert(problem),
            *(_of_residues(launch) for launch in product.launches),
            _combine(problem),
        )
        needed = (
            *spaces(problem),
            *_spaces(problem),
            *plain.workspace,
            *(replace(space, name=f"product_{space.name}") for space in product.workspace),
        )
        tables = {
            "residue_offsets": _offsets(inner),
            "residue_conversion": own.conversion,
            "residue_combination": own.combination,
        }
        return Work(launches, needed, tables)


def expected_count(problem: GemmProblem) -> int:
    """The number of moduli that normally distributed data take (choose.cl); 0 if residues do not serve."""
    own = _moduli(problem)
    depth = problem.k * own.planes
    wanted = 2 * lost_bits(depth, own.planes) + max(0.0, log2(depth) - 5)
    return next((n for n in range(1, MOST + 1) if own.half_bits(n) >= wanted), 0)


def _moduli(problem: GemmProblem) -> Moduli:
    return COMPLEX if problem.acc_type == "complex128" else REAL


def _blocks(problem: GemmProblem) -> range:
    """The blocks of K by their first elements."""
    count = ceil(problem.k / _MOST_BLOCK)
    return range(0, problem.k, round_up(ceil(problem.k / count), _PITCH))


def _inner(problem: GemmProblem) -> GemmProblem:
    """The products of residues: for each product of the stack, block of K and modulus."""
    m, n, blocks, own = problem.m, problem.n, _blocks(problem), _moduli(problem)
    pitch, ldo = blocks.step * len(blocks), round_up(n, 64)
    k, count = problem.k if len(blocks) == 1 else blocks.step, MOST * own.planes
    return GemmProblem(
        m=m, n=n, k=k, a_type="int8", b_type="int8", out_type="uint8", acc_type="uint32", trans_b=True,
        lda=pitch, ldb=pitch, ldo=ldo, batch_shape=(problem.batch, len(blocks), count),
        batch_strides=(
            (m * pitch * count, k, m * pitch), (n * pitch * count, k, n * pitch), (0, 0, 0),
            (m * ldo * count * len(blocks), m * ldo * count, m * ldo),
        ),
        c_type="uint8", bias_type="uint8", moduli=own.of_products,
    )  # fmt: skip


def _offsets(inner: GemmProblem) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The offsets of :func:`_inner`'s operands and result, as cl/include/gemm.h reads them."""
    columns = []
    for strides in inner.batch_strides:
        grid = np.indices(inner.batch_shape, np.int64).reshape(len(strides), -1)
        columns.append(np.tensordot(np.array(strides, np.int64), grid, 1))
    return np.stack(columns, axis=-1)


def _for(config: TileConfig, product: int) -> TileConfig:
    """*config* of the family number *product* of those that multiply residues."""
    return replace(config, options={**dict(config.options), "product": product})


def _product_config(config: TileConfig) -> TileConfig:
    own = {name: value for name, value in dict(config.options).items() if not name.startswith(PLAIN)}
    own.pop("product", None)
    return replace(config, options=own)


def _spaces(problem: GemmProblem) -> tuple[Workspace, ...]:
    inner = _inner(problem)
    planes = problem.batch * len(inner.moduli)
    return (
        Workspace("residues_a", planes * inner.m * inner.lda),
        Workspace("residues_b", planes * inner.n * inner.ldb),
        Workspace("digits", planes * len(_blocks(problem)) * inner.m * inner.ldo),
    )


def _convert(problem: GemmProblem) -> Launch:
    inner = _inner(problem)
    tiles = (ceil(inner.m / _TILE_LINES) + ceil(inner.n / _TILE_LINES)) * (
        inner.lda * _moduli(problem).planes // _TILE_K
    )
    spaces = ("workspace:scales", GATE, "workspace:residues_a", "workspace:residues_b")
    extra = (*spaces, np.int64(inner.lda), "residue_conversion")
    defines = (("MODULI", len(inner.moduli)),)
    return launch(
        problem, "residues", "convert", (tiles * _CONVERT_ITEMS,), (_CONVERT_ITEMS,), extra, defines
    )


def _combine(problem: GemmProblem) -> Launch:
    inner = _inner(problem)
    spaces = ("workspace:scales", GATE, "workspace:digits")
    extra = (*spaces, np.int64(inner.ldo), np.int32(len(_blocks(problem))), "residue_combination")
    defines = (("MODULI", MOST),)
    size = (round_up(ceil(inner.n / _COLUMNS), _COMBINE[0]), round_up(inner.m, _COMBINE[1]))
    return launch(problem, "residues", "combine", size, _COMBINE, extra, defines)


_OPERANDS: dict[str, Arg] = {
    "a": "workspace:residues_a",
    "b": "workspace:residues_b",
    "out": "workspace:digits",
    "c": "workspace:digits",  # never read, as bias
    "bias": "workspace:digits",
    **dict.fromkeys(("a_offset", "b_offset", "out_offset", "c_offset", "bias_offset"), np.int64(0)),
    "alpha": np.uint32(1),
    "beta": np.uint32(0),
    "batch_offsets": "residue_offsets",
    GATE: GATE,
}


def _of_residues(launch: Launch) -> Launch:
    """A launch of the products of residues, with the buffers and scalars of these."""

    def own(arg: Arg) -> Arg:
        if not isinstance(arg, str):
            return arg
        if arg in _OPERANDS:
            return _OPERANDS[arg]
        return arg.replace("workspace:", "workspace:product_")

    return replace(launch, args=tuple(own(arg) for arg in launch.args), packs="")
