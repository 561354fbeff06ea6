"""`residues`: float64 products by 8-bit integer products, which another family computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, log2, sqrt

import numpy as np

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import (
    GATE,
    Arg,
    Defines,
    Kernel,
    Launch,
    Program,
    Work,
    Workspace,
    gemm_args,
    gemm_defines,
    local_range,
    ndrange,
    round_up,
)
from .moduli import COMPLEX, MOST, REAL, Moduli

_LINES = 16  # LINES of cl/residues/measure.cl
_MOST_ITEMS = 256  # of its work-groups
_CHOOSE_ITEMS = 128
_CONVERT_ITEMS, _TILE_LINES, _TILE_K = 256, 16, 128  # of cl/residues/convert.cl
_COLUMNS = 4  # of cl/residues/combine.cl
_COMBINE = (64, 2)  # its work-groups
_LINE_BYTES = 4 * (2 + 6 + 2)  # line_t of cl/residues/residues.h
_PLAN_BYTES = 16
_PITCH = 128  # elements; lines of residues are multiples
_MOST_BLOCK = (1 << 17) - _PITCH  # elements of K whose products fit 32 bits (cl/include/moduli.h)
_LONGEST = 1 << 20  # SLACK of cl/residues/choose.cl
# Fraction of the rate of memory that the launches besides the products reach. H200
_MOVED = 0.5
# Bits that normal data, real and complex, need beyond the 53 that the bound allows for: fitted to the
# decisions of choose.cl for M = N = 256 and K = 64 to 8192.
_LOST_BITS = (7.8, 7.3)
_PLAIN = "plain"  # prefix of the options that hold the configuration of the plain product


class Residues(Kernel):
    """See cl/residues/residues.h. ``products``: the families that may multiply residues; ``plain``: those
    that may compute the product where residues do not serve. A configuration is that of the first, with
    options: ``product`` and ``plain``, the numbers of the families; ``plain_bm`` and so on, the configuration
    of the plain one.
    """

    name = "residues"
    summary = 'float64 and complex128 with precision="high", by 8-bit integer products'

    def __init__(self, products: Sequence[Kernel], plain: Sequence[Kernel]) -> None:
        self._products, self._plains = tuple(products), tuple(plain)
        self.matrix_units = any(kernel.matrix_units for kernel in products)

    def supports(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if {problem.a_type, problem.b_type, problem.acc_type} not in ({"float64"}, {"complex128"}):
            return "only float64 by float64 and complex128 by complex128 are multiplied by residues"
        if problem.precision == "highest" and not problem.soft_float64:
            return "float64 is multiplied by residues for precision='high' and 'medium', not 'highest'"
        if problem.reproducible:
            return "whole numbers are added, not chains of fused multiply-adds"
        if not 0 < problem.k <= _LONGEST // _moduli(problem).planes:
            return f"K must be 1 to {_LONGEST // _moduli(problem).planes} for products by residues"
        steps = 2 * _moduli(problem).planes * ceil(problem.k * _LINES / _items(device))
        return device.too_many_steps(steps) or self._no_plain(problem, device)

    def _no_plain(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        """Why nobody computes the plain product, or None if a family does."""
        fallback = _fallback(problem)
        reasons = [f.supports(fallback, device) for f in self._plains if _may_return(f, device)]
        return reasons[-1] if all(reasons) else None

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        plain = self._best_plain(problem, device)
        if plain is None:
            return []
        inner = _inner(problem)
        for number, family in enumerate(self._products):
            if _may_return(family, device) and family.supports(inner, device) is None:
                found = [c for c in family.configs(inner, device) if c.split_k < 2]  # sums are reduced once
                found = [c for c in found if not family.violations(inner, c, device)]
                if found:
                    return [_with(config, number, *plain) for config in found]
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
        plain = self._plains[config.option(_PLAIN)]
        return seconds + plain.estimate(_fallback(problem), _plain_config(config), device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        numbers = config.option("product"), config.option(_PLAIN)
        if numbers[0] >= len(self._products) or numbers[1] >= len(self._plains):
            return [f"there are no families number {numbers}"]
        product, plain = self._products[numbers[0]], self._plains[numbers[1]]
        inner, fallback = _inner(problem), _fallback(problem)
        refused = product.supports(inner, device) or plain.supports(fallback, device)
        if refused:
            return [refused]
        return [
            *product.violations(inner, _product_config(config), device),
            *plain.violations(fallback, _plain_config(config), device),
            *TileConfig().violations(device, (_CONVERT_ITEMS,), 8 * _TILE_LINES * (_TILE_K * 9 // 8 + 1)),
        ]

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        inner = _inner(problem)
        plain = self._plains[config.option(_PLAIN)].launches(
            _fallback(problem), _plain_config(config), device
        )
        product = self._products[config.option("product")].launches(inner, _product_config(config), device)
        launches = (
            _measure(problem, device),
            _choose(problem, device),
            *(replace(launch, packs="") for launch in plain.launches),  # which may return at once
            _convert(problem),
            *(_of_residues(launch) for launch in product.launches),
            _combine(problem),
        )
        spaces = (
            *_spaces(problem),
            *plain.workspace,
            *(replace(space, name=f"product_{space.name}") for space in product.workspace),
        )
        tables = {
            "residue_offsets": _offsets(inner),
            "residue_conversion": _moduli(problem).conversion,
            "residue_combination": _moduli(problem).combination,
        }
        return Work(launches, spaces, tables)

    def _best_plain(self, problem: GemmProblem, device: DeviceInfo) -> tuple[int, TileConfig] | None:
        """The number of the family of the plain product, and its configuration; None if there is none."""
        fallback = _fallback(problem)
        for number, family in enumerate(self._plains):
            if _may_return(family, device) and family.supports(fallback, device) is None:
                for config in family.configs(fallback, device):
                    if not family.violations(fallback, config, device):
                        return number, config
        return None


def _may_return(family: Kernel, device: DeviceInfo) -> bool:
    """Whether launches of *family* may return at once (GATE in cl/include/gemm.h)."""
    return not (family.has_barriers and device.vendor == "pocl")


def expected_count(problem: GemmProblem) -> int:
    """The number of moduli that normally distributed data take (choose.cl); 0 if residues do not serve."""
    own = _moduli(problem)
    depth = problem.k * own.planes
    bits = 53 + _LOST_BITS[own.planes - 1] + 12 / sqrt(depth) - log2(max(8, depth / 4))
    wanted = 2 * bits + max(0.0, log2(depth) - 5)
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


def _fallback(problem: GemmProblem) -> GemmProblem:
    return replace(problem, fallback=True, precision="highest")


def _offsets(inner: GemmProblem) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The offsets of :func:`_inner`'s operands and result, as cl/include/gemm.h reads them."""
    columns = []
    for strides in inner.batch_strides:
        grid = np.indices(inner.batch_shape, np.int64).reshape(len(strides), -1)
        columns.append(np.tensordot(np.array(strides, np.int64), grid, 1))
    return np.stack(columns, axis=-1)


def _with(config: TileConfig, product: int, plain: int, plain_config: TileConfig) -> TileConfig:
    """The configuration of both families as one."""
    fields = {f"{_PLAIN}_{name}": value for name, value in plain_config.as_dict().items()}
    return replace(config, options={**dict(config.options), "product": product, _PLAIN: plain, **fields})


def _product_config(config: TileConfig) -> TileConfig:
    own = {name: value for name, value in dict(config.options).items() if not name.startswith(_PLAIN)}
    own.pop("product", None)
    return replace(config, options=own)


_SIZES = ("bm", "bn", "bk", "sgm", "sgn", "tm", "tn", "vec", "stages", "split_k")


def _plain_config(config: TileConfig) -> TileConfig:
    prefix = f"{_PLAIN}_"
    own = {n.removeprefix(prefix): v for n, v in dict(config.options).items() if n.startswith(prefix)}
    sizes = {name: own.pop(name) for name in _SIZES if name in own}
    return TileConfig(**sizes, options=own)


def _items(device: DeviceInfo) -> int:
    """Work-items of a work-group of cl/residues/measure.cl."""
    return max(_LINES, min(_MOST_ITEMS, device.max_work_group_size) // _LINES * _LINES)


def _groups(problem: GemmProblem) -> tuple[int, int]:
    """Work-groups of measure.cl for one product: of rows of A, and of columns of B."""
    return ceil(problem.m / _LINES), ceil(problem.n / _LINES)


def _spaces(problem: GemmProblem) -> tuple[Workspace, ...]:
    inner = _inner(problem)
    planes = problem.batch * len(inner.moduli)
    return (
        Workspace("scales", 4 * (inner.m + inner.n) * problem.batch),
        Workspace("worst", _LINE_BYTES * sum(_groups(problem)) * problem.batch),
        Workspace("plan", _PLAN_BYTES),
        Workspace("residues_a", planes * inner.m * inner.lda),
        Workspace("residues_b", planes * inner.n * inner.ldb),
        Workspace("digits", planes * len(_blocks(problem)) * inner.m * inner.ldo),
    )


def _launch(
    problem: GemmProblem, name: str, size: tuple[int, ...], local: tuple[int, ...], extra: tuple[Arg, ...],
    defines: Defines = (),
) -> Launch:  # fmt: skip
    """A launch of one of cl/residues/ for each product of the stack."""
    return Launch(
        Program(f"residues/{name}.cl", (*gemm_defines(problem), *defines)),
        f"residues_{name}",
        ndrange(problem, *size),
        local_range(problem, *local),
        (*gemm_args(problem), *extra),
    )


def _measure(problem: GemmProblem, device: DeviceInfo) -> Launch:
    items = _items(device)
    extra = ("workspace:scales", "workspace:worst")
    size = sum(_groups(problem)) * items
    return _launch(problem, "measure", (size,), (items,), extra, (("LINES", _LINES), ("ITEMS", items)))


def _choose(problem: GemmProblem, device: DeviceInfo) -> Launch:
    own = _moduli(problem)
    bits = ",".join(f"{own.half_bits(n):.3f}f" for n in range(1, MOST + 1))
    items = min(_CHOOSE_ITEMS, 1 << (device.max_work_group_size.bit_length() - 1))
    defines = (("MODULI", MOST), ("BITS_LIST", bits), ("PER_MODULUS", own.planes), ("ITEMS", items))
    sizes = (*_groups(problem), problem.k * own.planes, problem.batch)
    program = Program("residues/choose.cl", defines)
    args: tuple[Arg, ...] = ("workspace:worst", GATE, *(np.int32(size) for size in sizes))
    return Launch(program, "residues_choose", (items,), (items,), args)


def _convert(problem: GemmProblem) -> Launch:
    inner = _inner(problem)
    tiles = (ceil(inner.m / _TILE_LINES) + ceil(inner.n / _TILE_LINES)) * (
        inner.lda * _moduli(problem).planes // _TILE_K
    )
    spaces = ("workspace:scales", GATE, "workspace:residues_a", "workspace:residues_b")
    extra = (*spaces, np.int64(inner.lda), "residue_conversion")
    defines = (("MODULI", len(inner.moduli)),)
    return _launch(problem, "convert", (tiles * _CONVERT_ITEMS,), (_CONVERT_ITEMS,), extra, defines)


def _combine(problem: GemmProblem) -> Launch:
    inner = _inner(problem)
    spaces = ("workspace:scales", GATE, "workspace:digits")
    extra = (*spaces, np.int64(inner.ldo), np.int32(len(_blocks(problem))), "residue_combination")
    defines = (("MODULI", MOST),)
    size = (round_up(ceil(inner.n / _COLUMNS), _COMBINE[0]), round_up(inner.m, _COMBINE[1]))
    return _launch(problem, "combine", size, _COMBINE, extra, defines)


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
