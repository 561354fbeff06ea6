"""What `residues` and `limbs` share: the launches that decide, and the product if they decide against it.

The first launches measure the operands and decide on the device (cl/residues/residues.h). The plain product
returns at once unless they decide against whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, log2, sqrt

import numpy as np

from ...problem.gemm import GemmProblem
from ...problem.precision import PRECISIONS
from ..accepts import GENERAL, Accepts, Types
from ..config import PlainConfig, TileConfig
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
)

_LINES = 16  # LINES of cl/residues/measure.cl
_MOST_ITEMS = 256  # of its work-groups
_CHOOSE_ITEMS = 128
_LINE_BYTES = 4 * (2 + 6 + 2)  # line_t of cl/residues/residues.h
_PLAN_BYTES = 16
_LONGEST = 1 << 20  # real numbers of a line: SLACK of cl/residues/choose.cl
# Bits that normal data, real and complex, need beyond the 53 that the bound allows for: fitted to the
# decisions of choose.cl for M = N = 256 and K = 64 to 8192.
_LOST_BITS = (7.8, 7.3)


def planes_of(problem: GemmProblem) -> int:
    """Real numbers in an element."""
    return 2 if problem.acc_type == "complex128" else 1


WHOLE_NUMBERS = Accepts(
    tuple(
        Types((name,), name, *given)
        for name in ("float64", "complex128")
        for given in ((("high", "medium"),), (PRECISIONS, True))
    ),
    GENERAL | {"soft_float64"},
)


def too_deep(problem: GemmProblem, device: DeviceInfo) -> str | None:
    """Why K is not one of products by whole numbers on *device*, or None if it may be."""
    if not 0 < problem.k <= _LONGEST // planes_of(problem):
        return f"K must be 1 to {_LONGEST // planes_of(problem)} for products by residues"
    return device.too_many_steps(2 * planes_of(problem) * ceil(problem.k * _LINES / _items(device)))


def lost_bits(depth: int, planes: int) -> float:
    """Bits of an element that normally distributed data need for lines of *depth* real numbers."""
    return 53 + _LOST_BITS[planes - 1] + 12 / sqrt(depth) - log2(max(8, depth / 4))


def may_return(family: Kernel, device: DeviceInfo) -> bool:
    """Whether launches of *family* may return at once (GATE in cl/include/gemm.h)."""
    return not (family.has_barriers and device.vendor == "pocl")


def _fallback(problem: GemmProblem) -> GemmProblem:
    return replace(problem, fallback=True, precision="highest")


def not_able(
    name: str, number: int, families: Sequence[Kernel], problem: GemmProblem, device: DeviceInfo
) -> str | None:
    """Why *name* may not be *number*, a place in *families*, or None if that family computes *problem*."""
    if number < len(families) and families[number].refuses(problem, device) is None:
        return None
    meant = f" ({families[number].name})" if number < len(families) else ""
    able = [f"{i} ({f.name})" for i, f in enumerate(families) if f.refuses(problem, device) is None]
    return f"{name} may be {', '.join(able) or 'nothing'} here, not {number}{meant}"


class Plain:
    """The product where whole numbers do not serve, by the first of *families* that can."""

    def __init__(self, families: Sequence[Kernel]) -> None:
        self._families = tuple(families)

    def refusal(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        """Why nobody computes it, or None if a family does."""
        fallback = _fallback(problem)
        reasons = [f.refuses(fallback, device) for f in self._families if may_return(f, device)]
        return reasons[-1] if all(reasons) else None

    def best(self, problem: GemmProblem, device: DeviceInfo) -> PlainConfig | None:
        """The number of its family, and its configuration; None if there is none."""
        fallback = _fallback(problem)
        for number, family in enumerate(self._families):
            if may_return(family, device) and family.refuses(fallback, device) is None:
                for config in family.configs(fallback, device):
                    return PlainConfig(number, config)
        return None

    def _of(self, config: TileConfig) -> tuple[Kernel, TileConfig]:
        """Who computes it, and how."""
        plain = config.plain or PlainConfig(0, TileConfig())
        return self._families[plain.family], plain.config

    def where_needed(self, config: TileConfig) -> str:
        """In words, who computes it."""
        return f"data that need it get the plain product by {self._of(config)[0].name}"

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        family, own = self._of(config)
        return family.estimate(_fallback(problem), own, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        fallback = _fallback(problem)
        if config.plain is None:
            return ["plain is missing: the configuration of the product where the data need it"]
        if refused := not_able("plain", config.plain.family, self._families, fallback, device):
            return [refused]
        family, own = self._of(config)
        return family.violations(fallback, own, device)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        """Launches that may return at once, so none packs an operand for later calls."""
        family, own = self._of(config)
        work = family.launches(_fallback(problem), own, device)
        return replace(work, launches=tuple(replace(launch, packs="") for launch in work.launches))


def _items(device: DeviceInfo) -> int:
    """Work-items of a work-group of cl/residues/measure.cl."""
    return max(_LINES, min(_MOST_ITEMS, device.max_work_group_size) // _LINES * _LINES)


def _groups(problem: GemmProblem) -> tuple[int, int]:
    """Work-groups of measure.cl for one product: of rows of A, and of columns of B."""
    return ceil(problem.m / _LINES), ceil(problem.n / _LINES)


def spaces(problem: GemmProblem) -> tuple[Workspace, ...]:
    """What the launches that decide write."""
    return (
        Workspace("scales", 4 * (problem.m + problem.n) * problem.batch),
        Workspace("worst", _LINE_BYTES * sum(_groups(problem)) * problem.batch),
        Workspace("plan", _PLAN_BYTES),
    )


def launch(
    problem: GemmProblem, family: str, name: str, size: tuple[int, ...], local: tuple[int, ...],
    extra: tuple[Arg, ...], defines: Defines = (),
) -> Launch:  # fmt: skip
    """A launch of one of cl/residues/ for each product of the stack."""
    source = name if family == "residues" else f"{family}_{name}"
    return Launch(
        Program(f"residues/{source}.cl", (*gemm_defines(problem), *defines)),
        f"{family}_{name}",
        ndrange(problem, *size),
        local_range(problem, *local),
        (*gemm_args(problem), *extra),
    )


def measure(problem: GemmProblem, device: DeviceInfo) -> Launch:
    """See cl/residues/measure.cl."""
    items = _items(device)
    extra = ("workspace:scales", "workspace:worst")
    size, defines = sum(_groups(problem)) * items, (("LINES", _LINES), ("ITEMS", items))
    return launch(problem, "residues", "measure", (size,), (items,), extra, defines)


def choose(
    problem: GemmProblem, device: DeviceInfo, half_bits: Sequence[float], products: int, most_bits: int
) -> Launch:
    """See cl/residues/choose.cl. *half_bits*: what whole numbers may have, for each count that it may choose;
    *products*: of each of them; *most_bits* of an element.
    """
    items = min(_CHOOSE_ITEMS, 1 << (device.max_work_group_size.bit_length() - 1))
    listed = ",".join(f"{bits:.3f}f" for bits in half_bits)
    defines = (
        ("MODULI", len(half_bits)), ("BITS_LIST", listed), ("PER_MODULUS", products),
        ("MOST_BITS", most_bits), ("ITEMS", items),
    )  # fmt: skip
    sizes = (*_groups(problem), problem.k * planes_of(problem), problem.batch)
    args: tuple[Arg, ...] = ("workspace:worst", GATE, *(np.int32(size) for size in sizes))
    return Launch(Program("residues/choose.cl", defines), "residues_choose", (items,), (items,), args)
