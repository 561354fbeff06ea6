"""The launches that check each result of a product: see cl/verify.cl and docs/verification.md. Pure data.

Technique: R. Freivalds, "Probabilistic machines can use less running time" (1977): out r = A (B r) for random
vectors r. Row sums as K.-H. Huang and J. A. Abraham, "Algorithm-based fault tolerance for matrix operations" (1984).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..errors import UnsupportedError
from ..problem.dtypes import COMPLEX, ELEMENTS, dtype_of
from ..problem.gemm import MAX_ALIGN, Copy, GemmProblem, dense_strides
from .device import DeviceInfo
from .interface import Arg, Defines, Launch, Table, Work, Workspace, gemm_args, gemm_program
from .launches import batch_table, copy_launch

VERDICT = Workspace("verify_verdict", 96, zeroed=True)
ALARM = Workspace("verify_alarm", 4, zeroed=True, watched=True)
_MAY_FLUSH = {"float32": 2.0**-126, "bfloat16": 2.0**-126, "complex64": 2.0**-126}
_SLACK = 1.02  # of the bound: it is computed with rounding too


@dataclass(frozen=True)
class _Form:
    """How work-groups of verify.cl are made."""

    items: int
    lanes: int
    rows: int
    width: int
    slices: int
    parts: int

    @classmethod
    def on(cls, device: DeviceInfo) -> _Form:
        if device.is_cpu:
            return cls(items=1, lanes=32, rows=1, width=64, slices=1, parts=1)
        return cls(items=min(256, device.max_work_group_size), lanes=4, rows=8, width=4, slices=8, parts=4)

    def chain(self, length: int, walks: bool) -> int:
        """Additions that one element goes through in a sum over *length* elements."""
        side_by_side = self.slices * self.parts if walks else self.items * self.lanes
        return length // side_by_side + self.lanes + self.parts + 2 * self.items.bit_length() + 2

    def groups(self, lines: int, walks: bool) -> tuple[int, int]:
        """Work-groups in dimensions 0 and 1 for sums of *lines*."""
        if walks:
            return -(-lines // (self.items // self.slices * self.width)), self.parts
        return -(-lines // self.rows), 1


def checked_problem(problem: GemmProblem) -> GemmProblem:
    """What is checked of *problem*: without an activation, into dense memory of the type of the sums.

    An activation is not linear; :func:`verified` applies it to what was checked. Raises UnsupportedError for
    results that cannot be checked.
    """
    if problem.out_type == "bool":
        raise UnsupportedError("verify: a product of bools is no sum; multiply integers: a.astype(np.uint32)")
    if problem.soft_float64:
        raise UnsupportedError("verify: float64 needs cl_khr_fp64, which the device does not have")
    if problem.activation == "none":
        return problem
    steps = dense_strides((*problem.batch_shape, problem.m, problem.n))[:-2]
    strides = (*problem.batch_strides[:3], steps)
    plain = replace(problem, activation="none", out_type=problem.acc_type, ldo=problem.n, out_align=MAX_ALIGN)
    return replace(plain, batch_strides=strides)


def verified(problem: GemmProblem, product: Work, device: DeviceInfo) -> Work:
    """*product*, the launches of what is checked of *problem*, between those that check it."""
    plain = checked_problem(problem)
    before, after, spaces = _checks(plain, device)
    launches, tables = (*before, *product.launches, after), product.tables
    if plain is not problem:
        space = Workspace("verify_sums", problem.m * problem.n * problem.batch * problem.sums.nbytes)
        spaces.append(space)
        renamed: dict[Arg, Arg] = {"out": space.symbol, "out_offset": np.int64(0)}
        launches = (*(x.renamed(renamed) for x in launches), _activation(problem, plain, space))
        tables = {**tables, "activation_offsets": _offsets(problem, plain)}
    return Work(launches, (*product.workspace, *spaces), tables)


def _activation(problem: GemmProblem, plain: GemmProblem, space: Workspace) -> Launch:
    """The launch that activates what was checked, and stores it in out."""
    shape = (*problem.batch_shape, problem.m, problem.n)
    source, target = (*plain.batch_strides[3], plain.ldo, 1), (*problem.batch_strides[3], problem.ldo, 1)
    copy = Copy(shape, plain.out_type, source, problem.out_type, target)
    where: tuple[Arg, Arg] = (space.symbol, np.int64(0))
    offsets = "activation_offsets"
    return copy_launch(copy, where, ("out", "out_offset"), offsets, activation=problem.activation)


def _offsets(problem: GemmProblem, plain: GemmProblem) -> Table:
    return batch_table(problem.batch_shape, (plain.batch_strides[3], problem.batch_strides[3]))


def _checks(problem: GemmProblem, device: DeviceInfo) -> tuple[list[Launch], Launch, list[Workspace]]:
    """The launches before the product, the one after it, and their workspace."""
    form, plain = _Form.on(device), _plain(problem)
    size = dtype_of(_size_type(problem))
    factor, rest, largest = (size.type(x) for x in _bound(problem, form))
    program = gemm_program(plain, "verify.cl", _defines(problem, form, device))
    whole = size.type(1 / factor if factor else 0)
    common: tuple[Arg, ...] = (VERDICT.symbol, ALARM.symbol, "workspace:verify_flags", whole)
    spaces = [VERDICT, ALARM, Workspace("verify_flags", 4 * (problem.m + problem.n) * max(1, problem.batch), zeroed=True)]

    def sums(name: str, lines: int, parts: int = 1) -> tuple[Arg, Arg]:
        count = max(1, lines * parts * problem.batch)
        made = Workspace(f"verify_{name}", count * problem.sums.nbytes)
        sizes = Workspace(f"verify_size_{name}", count * size.itemsize)
        spaces.extend((made, sizes))
        return made.symbol, sizes.symbol

    def launch(kernel: str, lines: int, walks: bool, extra: tuple[Arg, ...]) -> Launch:
        groups, parts = form.groups(lines, walks)
        global_size = (groups * form.items, parts, problem.batch)
        return Launch(program, kernel, global_size, (form.items, 1, 1), (*gemm_args(plain), *common, *extra))

    m, n, k = problem.m, problem.n, problem.k
    x = sums("x", k, form.parts if problem.trans_b else 1)
    t = sums("t", m, form.parts if problem.trans_a else 1)
    u = sums("u", m) if problem.extras else t
    before = [launch("verify_b", k, problem.trans_b, x)] if k else []
    before.append(launch("verify_a", m, problem.trans_a, (*x, *t)))
    if problem.extras:
        before.append(launch("verify_c", m, False, u))
    return before, launch("verify_out", m, False, (*t, *u, factor, rest, largest)), spaces


def _plain(problem: GemmProblem) -> GemmProblem:
    """*problem* as the sums of verify.cl see it."""
    return replace(problem, reproducible=False, soft_fma=False, moduli=(), dot_bytes=False, fallback=False)


def _size_type(problem: GemmProblem) -> str:
    return "float64" if problem.acc_type in ("float64", "complex128") else "float32"


def _defines(problem: GemmProblem, form: _Form, device: DeviceInfo) -> Defines:
    least = dict(_MAY_FLUSH)
    if device.gfx == "gfx90a":  # its matrix units take subnormal operands for 0
        least["float16"] = 2.0**-14
    return (
        ("ITEMS", form.items),
        ("LANES", form.lanes),
        ("ROWS", form.rows),
        ("WIDTH", form.width),
        ("SLICES", form.slices),
        ("PARTS", form.parts),
        ("WITH_BOUND", int(problem.sums.significand > 0)),
        ("LEAST_A", f"{least.get(problem.a_type, 0.0)!r}f"),
        ("LEAST_B", f"{least.get(problem.b_type, 0.0)!r}f"),
    )


def _bound(problem: GemmProblem, form: _Form) -> tuple[float, float, float]:
    """The bound of a row's sum relative to sum |a| |b|, what is added to it, and the largest number of out.

    docs/precision.md has the errors of a product; the sums of verify.cl add their own.
    """
    if not problem.sums.significand:
        return 0.0, 0.0, 0.0
    u = 2.0**-problem.sums.significand
    out = ELEMENTS[problem.out_type]
    own = (
        form.chain(problem.n, problem.trans_b)
        + form.chain(problem.k, problem.trans_a)
        + form.chain(problem.n, False) * (2 if problem.extras else 1)
    )
    factor = u * (problem.k + 16 + own)
    if problem.precision == "medium" and problem.a_type in ("float32", "complex64"):
        factor += 2.0**-10
    if problem.acc_type in COMPLEX:
        factor *= 4  # each part is a sum of 2 K products, and both parts are added
    if out.significand < problem.sums.significand:
        factor += 2.0**-out.significand
    least, end = out.exponents
    lowest = 2.0**-1074 if u < 2.0**-24 else 2.0**-126  # that a sum of a device keeps
    rest = problem.n * (2.0**least + (problem.k + 4) * lowest)
    return _SLACK * factor, rest, 2.0 ** (end - 1)
