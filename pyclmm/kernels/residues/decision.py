"""What `residues` and `limbs` share: the launches that decide, and the product if they decide against it.

The first launches measure the operands and decide on the device (cl/residues/residues.h). The plain product
returns at once unless they decide against whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2, sqrt

import numpy as np

from ...problem.gemm import GemmProblem
from ...problem.settings import PRECISIONS
from ..accepts import GENERAL, Accepts, Types
from ..device import DeviceInfo
from ..interface import GATE, Arg, Defines, Launch, Program, Workspace, gemm_launch, gemm_program

_LINES = 16  # LINES of cl/residues/measure.cl, at most
_MOST_ITEMS = 256  # of its work-groups
_CHOOSE_ITEMS = 128
_LINE_BYTES = 4 * (2 + 6 + 2)  # line_t of cl/residues/residues.h
_PLAN_BYTES = 16
_LONGEST = 1 << 20  # real numbers of a line: SLACK of cl/residues/choose.cl
# Bits that normal data, real and complex, need beyond the 53 that the bound allows for: fitted to the
# decisions of choose.cl for M = N = 256 and K = 64 to 8192.
_LOST_BITS = (7.8, 7.3)


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
    if not 0 < problem.k <= _LONGEST // problem.sums.planes:
        return f"K must be 1 to {_LONGEST // problem.sums.planes} for products by residues"
    depth = problem.k * problem.sums.planes
    return device.too_many_steps(2 * ceil(depth * _lines(problem, device) / _items(device)))


def lost_bits(depth: int, planes: int) -> float:
    """Bits of an element that normally distributed data need for lines of *depth* real numbers."""
    return 53 + _LOST_BITS[planes - 1] + 12 / sqrt(depth) - log2(max(8, depth / 4))


def _items(device: DeviceInfo) -> int:
    """Work-items of a work-group of cl/residues/measure.cl."""
    return device.group_items(_MOST_ITEMS)


def _lines(problem: GemmProblem, device: DeviceInfo) -> int:
    """Lines that it measures. As many work-items have each, a multiple of the parts of a number."""
    return min(_LINES, _items(device) // problem.sums.planes)


def _groups(problem: GemmProblem, device: DeviceInfo) -> tuple[int, int]:
    """Work-groups of measure.cl for one product: of rows of A, and of columns of B."""
    return ceil(problem.m / _lines(problem, device)), ceil(problem.n / _lines(problem, device))


def spaces(problem: GemmProblem, device: DeviceInfo) -> tuple[Workspace, ...]:
    """What the launches that decide write."""
    return (
        Workspace("scales", 4 * (problem.m + problem.n) * problem.batch),
        Workspace("worst", _LINE_BYTES * sum(_groups(problem, device)) * problem.batch),
        Workspace("plan", _PLAN_BYTES),
    )


def launch(
    problem: GemmProblem, family: str, name: str, size: tuple[int, ...], local: tuple[int, ...],
    extra: tuple[Arg, ...], defines: Defines = (),
) -> Launch:  # fmt: skip
    """A launch of one of cl/residues/ for each product of the stack."""
    source = name if family == "residues" else family
    program = gemm_program(problem, f"residues/{source}.cl", defines)
    return gemm_launch(problem, program, f"{family}_{name}", size, local, extra)


def measure(problem: GemmProblem, device: DeviceInfo) -> Launch:
    """See cl/residues/measure.cl."""
    items, lines = _items(device), _lines(problem, device)
    extra = ("workspace:scales", "workspace:worst")
    size, defines = sum(_groups(problem, device)) * items, (("LINES", lines), ("ITEMS", items))
    return launch(problem, "residues", "measure", (size,), (items,), extra, defines)


def choose(
    problem: GemmProblem, device: DeviceInfo, half_bits: Sequence[float], products: int, most_bits: int
) -> Launch:
    """See cl/residues/choose.cl. *half_bits*: what whole numbers may have, for each count that it may choose;
    *products*: of each of them; *most_bits* of an element.
    """
    items = device.group_items(_CHOOSE_ITEMS)
    listed = ",".join(f"{bits:.3f}f" for bits in half_bits)
    defines = (
        ("MODULI", len(half_bits)), ("BITS_LIST", listed), ("PER_MODULUS", products),
        ("MOST_BITS", most_bits), ("ITEMS", items),
    )  # fmt: skip
    sizes = (*_groups(problem, device), problem.k * problem.sums.planes, problem.batch)
    args: tuple[Arg, ...] = ("workspace:worst", GATE, *(np.int32(size) for size in sizes))
    return Launch(Program("residues/choose.cl", defines), "residues_choose", (items,), (items,), args)
