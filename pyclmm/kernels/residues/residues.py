"""`residues`: float64 products by 8-bit integer products, which another family computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, log2

import numpy as np

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import GATE, Kernel, Launch, Work, Workspace, round_up
from ..launches import batch_table
from ..plain import Plain, Products, may_return
from .decision import WHOLE_NUMBERS, choose, launch, lost_bits, measure, spaces, too_deep
from .moduli import MOST
from .products import FORM, FORMS, Form, blocks, form_of, forms_for, inner, moduli_of, of_residues, seconds
from .products import refusal as form_refusal

_CONVERT_ITEMS, _TILE_LINES, _TILE_K = 256, 16, 128  # of cl/residues/convert.cl
_COLUMNS = 4  # of cl/residues/combine.cl
_COMBINE = (64, 2)  # its work-groups
_MOST_BITS = 62  # of an element: cl/residues/convert.cl makes whole numbers of 64 bits
# Fraction of the rate of memory that the launches besides the products reach. H200
_MOVED = 0.5


class Residues(Kernel):
    """See cl/residues/residues.h. ``products``: the families that may multiply residues; ``plain``: those
    that may compute the product where residues do not serve. A configuration is that of the first, with
    options: ``product``, the number of the family; ``form``, in which residues are multiplied, a place in
    FORMS. ``plain`` is the configuration of the plain one.
    """

    name = "residues"
    summary = 'float64 and complex128 with precision="high", by 8-bit integer products'
    accepts = WHOLE_NUMBERS

    def __init__(self, products: Sequence[Kernel], plain: Sequence[Kernel]) -> None:
        self._products, self._plain = Products(products, FORM), Plain(plain)
        self.matrix_units = self._products.on_matrix_units
        self.options = tuple(sorted({*self._products.options, "plain"}))

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return too_deep(problem, device) or self._plain.refusal(problem, device) or _too_small(device)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        plain = self._plain.best(problem, device)
        if plain is None:
            return []
        for number, family in enumerate(self._products.families):
            if not may_return(family, device):
                continue
            found = [
                replace(config.with_options(product=number, form=form_number), plain=plain)
                for form_number, form in forms_for(family, problem, device)
                for config in family.candidates(inner(problem, form), device)
                if config.split_k < 2  # sums are reduced once
            ]
            if found:
                return found
        return []

    def checked_as(self, config: TileConfig) -> tuple[TileConfig, ...]:
        """With the ranges of K that the products' family chooses."""
        return (config,)

    def arithmetic(self, config: TileConfig) -> str:
        form, family = form_of(config), self._products.of(config)[0]
        sums = "float32 numbers" if form.sums == "float32" else "32-bit integers"
        return f"residues of 8 bits by {family.name}, summed as {sums}; {self._plain.where_needed(config)}"

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        form, planes, rates = form_of(config), problem.sums.planes, device.rates
        expected = expected_count(problem)
        count = (expected or MOST) * planes
        family, own = self._products.of(config)
        taken = seconds(family, problem, form, own, device, count)
        lines, results = (problem.m + problem.n) * problem.batch, problem.m * problem.n * problem.batch
        parts = len(blocks(problem, form))
        moved = lines * problem.k * (2 * 8 * planes + count) + results * (count * parts + 8 * planes)
        taken += 5 * rates.launch + rates.moved(moved) / _MOVED
        if expected:
            return taken
        return taken + self._plain.estimate(problem, config, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config.option(FORM) >= len(FORMS):
            return [f"form must be below {len(FORMS)}: {config}"]
        form = form_of(config)
        if refused := form_refusal(form, problem, device):
            return [f"form={config.option(FORM)}: {refused}"]
        return [
            *self._products.violations(inner(problem, form), config, device),
            *self._plain.violations(problem, config, device),
        ]

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        form, own = form_of(config), moduli_of(problem)
        plain = self._plain.launches(problem, config, device)
        (family, theirs), product = self._products.of(config), inner(problem, form)
        work = family.launches(product, theirs, device)
        launches = (
            measure(problem, device),
            choose(problem, device, own.half_bits, own.planes, _MOST_BITS),
            *plain.launches,
            _convert(problem, form),
            *(of_residues(launch, form) for launch in work.launches),
            _combine(problem, form),
        )
        needed = (
            *spaces(problem, device),
            *_spaces(problem, form),
            *plain.workspace,
            *(replace(space, name=f"product_{space.name}") for space in work.workspace),
        )
        tables = {
            "residue_offsets": batch_table(product.batch_shape, product.batch_strides),
            "residue_conversion": own.conversion,
            "residue_combination": own.combination,
        }
        return Work(launches, needed, tables)


def _too_small(device: DeviceInfo) -> str | None:
    """Why *device* cannot run the work-groups that have one size, or None if it can."""
    local_bytes = 8 * _TILE_LINES * (_TILE_K * 9 // 8 + 1)
    broken = TileConfig().violations(device, (_CONVERT_ITEMS,), local_bytes)
    return "; ".join(broken or TileConfig().violations(device, _COMBINE, 0)) or None


def expected_count(problem: GemmProblem) -> int:
    """The number of moduli that normally distributed data take (choose.cl); 0 if residues do not serve."""
    own = moduli_of(problem)
    depth = problem.k * own.planes
    wanted = 2 * lost_bits(depth, own.planes) + max(0.0, log2(depth) - 5)
    return next((n for n, bits in enumerate(own.half_bits, 1) if bits >= wanted), 0)


def _pitch(problem: GemmProblem, form: Form) -> int:
    """Residues from one line of an operand to the next."""
    parts = blocks(problem, form)
    return parts.step * len(parts)


def _spaces(problem: GemmProblem, form: Form) -> tuple[Workspace, ...]:
    product, pitch = inner(problem, form), _pitch(problem, form)
    planes = problem.batch * len(product.moduli)
    return (
        Workspace("residues_a", planes * product.m * pitch),
        Workspace("residues_b", planes * product.n * pitch),
        Workspace("digits", planes * len(blocks(problem, form)) * product.m * product.ldo),
    )


def _convert(problem: GemmProblem, form: Form) -> Launch:
    pitch, own = _pitch(problem, form), moduli_of(problem)
    lines = ceil(problem.m / _TILE_LINES) + ceil(problem.n / _TILE_LINES)
    tiles = lines * (pitch * own.planes // _TILE_K)
    spaces = ("workspace:scales", GATE, "workspace:residues_a", "workspace:residues_b")
    extra = (*spaces, np.int64(pitch), "residue_conversion")
    defines = (("MODULI", len(own.of_products)),)
    return launch(
        problem, "residues", "convert", (tiles * _CONVERT_ITEMS,), (_CONVERT_ITEMS,), extra, defines
    )


def _combine(problem: GemmProblem, form: Form) -> Launch:
    spaces = ("workspace:scales", GATE, "workspace:digits")
    parts, pitch = len(blocks(problem, form)), inner(problem, form).ldo
    extra = (*spaces, np.int64(pitch), np.int32(parts), "residue_combination")
    defines = (("MODULI", MOST),)
    size = (round_up(ceil(problem.n / _COLUMNS), _COMBINE[0]), round_up(problem.m, _COMBINE[1]))
    return launch(problem, "residues", "combine", size, _COMBINE, extra, defines)
