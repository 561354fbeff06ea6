"""The launches that check each result of a product: see cl/verify/ and docs/verification.md. Pure data.

Technique: R. Freivalds, "Probabilistic machines can use less running time" (1977): out r = A (B r), r random.
Row sums: K.-H. Huang, J. A. Abraham, "Algorithm-based fault tolerance for matrix operations" (1984).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..problem.dtypes import COMPLEX, ELEMENTS, dtype_of
from ..problem.gemm import Copy, GemmProblem, alignment, dense_strides
from . import reordered
from .config import ACCESS
from .device import DeviceInfo
from .interface import (
    ALARM,
    LISTED,
    VERDICT,
    Arg,
    Defines,
    Launch,
    Program,
    Table,
    Work,
    Workspace,
    gemm_args,
    gemm_program,
)
from .launches import batch_table, copy_launch
from .listed import in_a_list
from .weights import RUN, program_of

SUMS = 4096  # of a transfer: as many work-items
_FLOATS = ("float16", "bfloat16", "float32", "complex64")
_SLACK = 1.02  # of the bound: it is computed with rounding too


@dataclass(frozen=True)
class _FormOfSums:
    """The macros of cl/verify/sums.h that say what a work-group does."""

    items: int
    rows: int
    vec: int
    lanes: int
    slices: int
    parts: int

    @classmethod
    def of(cls, problem: GemmProblem, device: DeviceInfo) -> _FormOfSums:
        if device.is_cpu:
            return cls(items=1, rows=1, vec=32, lanes=32, slices=1, parts=1)
        items = cls.group(device)
        stored = (problem.a_type, _type_of_b(problem), problem.out_type)
        vec = max(1, min(8, ACCESS // min(ELEMENTS[name].nbytes for name in stored)))
        parts = (
            64 if problem.b_format else 16
        )  # a work-item takes a whole run of weights: else groups are few
        return cls(items=items, rows=4, vec=vec, lanes=1, slices=max(1, items // 32), parts=parts)

    @staticmethod
    def group(device: DeviceInfo) -> int:
        """Work-items of a group, a power of two."""
        return device.group_items(128)

    def is_wide(self, align: int, nbytes: int) -> bool:
        """Whether lines with that alignment are read by accesses of 16 bytes."""
        return self.items > 1 and align % ACCESS == 0 and self.vec * nbytes % ACCESS == 0

    def chain(self, length: int, walks: bool) -> int:
        """Additions that one element goes through, at most, in a sum over *length* elements."""
        alone = self.items * self.lanes
        side_by_side = self.slices * self.parts if walks else alone
        return length // side_by_side + self.vec + self.lanes + self.parts + 2 * self.items.bit_length() + 2

    def groups(self, lines: int, walks: bool) -> tuple[int, int]:
        """Work-groups in dimensions 0 and 1 for sums of *lines*."""
        if walks:
            return max(1, -(-lines // (self.items // self.slices * self.vec))), self.parts
        return max(1, -(-lines // self.rows)), 1


def checked_problem(problem: GemmProblem) -> GemmProblem:
    """What is checked of *problem*: without an activation, into dense memory of the type of the sums.

    An activation is not linear; :func:`verified` applies it to what was checked. Raises UnsupportedError for
    results that cannot be checked.
    """
    if problem.out_type == "bool":
        raise UnsupportedError("verify: a product of bools is no sum; multiply integers: a.astype(np.uint32)")
    if problem.products and problem.activation != "none":
        raise UnsupportedError(
            f"verify: lists with an activation are not checked; apply {problem.activation!r} to the "
            "results, or multiply one by one"
        )
    if problem.soft_float64:
        raise UnsupportedError("verify: float64 needs cl_khr_fp64, which the device does not have")
    if problem.activation == "none":
        return problem
    steps = dense_strides((*problem.batch_shape, problem.m, problem.n))[:-2]
    strides = problem.batch_strides._replace(out=steps)
    plain = replace(problem, activation="none", out_type=problem.acc_type, ldo=problem.n)
    steps_in_bytes = [problem.sums.nbytes * step for step in (problem.n, *steps)]
    return replace(plain, batch_strides=strides, out_align=alignment(*steps_in_bytes))


def verified(problem: GemmProblem, product: Work, device: DeviceInfo) -> Work:
    """*product*, the launches of what is checked of *problem*, between those that check it."""
    plain = checked_problem(problem)
    before, after, spaces, own = _checks_of_rows(plain, device)
    rest = [x for x in product.launches if x not in before]  # weights are put in rows once
    launches, tables = (*before, *rest, *after), {**own, **product.tables}
    if plain is not problem:
        space = Workspace("verify_sums", problem.m * problem.n * problem.batch * problem.sums.nbytes)
        spaces.append(space)
        renamed: dict[Arg, Arg] = {"out": space.symbol, "out_offset": np.int64(0)}
        launches = (*(x.renamed(renamed) for x in launches), _activation(problem, plain, space, device))
        strides = (plain.batch_strides.out, problem.batch_strides.out)
        tables = {**tables, "activation_offsets": batch_table(problem.batch_shape, strides)}
    return Work(launches, (*dict.fromkeys([*product.workspace, *spaces]),), tables)


def most_workspace(problem: GemmProblem, device: DeviceInfo) -> int:
    """The most bytes that the checks of *problem* need, however its operands lie, with a C or without."""
    every = (replace(x, trans_a=True, trans_b=True, has_c=True) for x in (problem, problem.transposed))
    return max(verified(each, Work(()), device).workspace_nbytes for each in every)


def allowed(problem: GemmProblem, device: DeviceInfo) -> tuple[float, float]:
    """The error that is allowed in the sum of a row: relative to that of the sizes of its terms, and beyond
    that, where alpha is at most 4."""
    factor, lost, rest, _ = _bound(problem, _FormOfSums.of(problem, device))
    return factor, 4 * lost + rest


def elements_of_a_pass(problem: GemmProblem, device: DeviceInfo) -> int:
    """Neighbours that a work-group adds up at a time."""
    form = _FormOfSums.of(problem, device)
    return form.items * form.vec


def transfer_sums(nbytes: int, device: DeviceInfo) -> Launch:
    """The launch that adds *nbytes* of "data" from "data_offset" on, word by word, into ``SUMS`` "sums"."""
    program, local = Program("verify/transfer.cl", ()), _FormOfSums.group(device)
    args: tuple[Arg, ...] = ("data", "data_offset", np.int64(nbytes), "sums")
    return Launch(program, "transfer_sums", (SUMS, 1, 1), (local, 1, 1), args)


def sum_of(memory: Any) -> int:
    """The sum of what :func:`transfer_sums` gives of the same bytes, modulo 2^32."""
    whole = memory.nbytes // 4 * 4
    words = memory[:whole].view(np.uint32)
    return int(np.add.reduce(words, dtype=np.uint32)) + int.from_bytes(memory[whole:], "little") & 0xFFFFFFFF


def seconds(problem: GemmProblem, device: DeviceInfo) -> float:
    """Estimated seconds of what :func:`verified` adds: launches that read the operands and the result."""
    plain = checked_problem(problem)
    launches = verified(problem, Work(()), device).launches
    moved = plain.nbytes + reordered.moved(plain, device)
    if plain is not problem:  # the activation reads the sums and writes the result
        element = plain.sums.nbytes + ELEMENTS[problem.out_type].nbytes
        moved += problem.m * problem.n * problem.batch * element
    return len(launches) * device.rates.launch + device.rates.moved(moved)


def _activation(problem: GemmProblem, plain: GemmProblem, space: Workspace, device: DeviceInfo) -> Launch:
    """The launch that activates what was checked, and stores it in out."""
    shape = (*problem.batch_shape, problem.m, problem.n)
    source, target = (*plain.batch_strides.out, plain.ldo, 1), (*problem.batch_strides.out, problem.ldo, 1)
    copy = Copy(shape, plain.out_type, source, problem.out_type, target)
    where: tuple[Arg, Arg] = (space.symbol, np.int64(0))
    offsets = "activation_offsets"
    return copy_launch(copy, where, ("out", "out_offset"), offsets, device, activation=problem.activation)


_Checks = tuple[list[Launch], list[Launch], list[Workspace], dict[str, Table]]


def _checks_of_rows(problem: GemmProblem, device: DeviceInfo) -> _Checks:
    """As :func:`_checks`. Weights in another order are read as rows."""
    rows = reordered.InRows.of(problem, device)
    before, after, spaces, own = _checks(rows.problem, device)
    return [*rows.launches, *rows.read(before)], [*rows.read(after)], [*rows.workspace, *spaces], own


def _checks(problem: GemmProblem, device: DeviceInfo) -> _Checks:
    """The launches before the product, those after it, their workspace and their tables."""
    form, plain = _FormOfSums.of(problem, device), _plain(problem)
    size = size_dtype(problem)
    bound = tuple(size.type(x) for x in _bound(problem, form))
    of_b = _form_of_b(problem, form)
    operands = _program(plain, "operands", _defines(problem, of_b, device))
    result = _program(plain, "result", _defines(problem, form, device))
    m, n, k, stack = problem.m, problem.n, problem.k, _products(problem)
    rows = m if _divides_rows(problem) else m * stack
    marks = [
        Workspace(f"verify_{x}", 4 * count, zeroed=True)
        for x, count in (("rows", rows), ("columns", n * stack))
    ]
    whole = size.type(1 / bound[0] if bound[0] else 0)
    common: tuple[Arg, ...] = (VERDICT.symbol, ALARM.symbol, *(x.symbol for x in marks), whole)
    spaces = [VERDICT, ALARM, *marks]

    def sums(name: str, lines: int, parts: int = 1) -> tuple[Arg, Arg]:
        count = max(1, lines * parts)
        spaces.append(Workspace(f"verify_{name}", count * problem.sums.nbytes))
        spaces.append(Workspace(f"verify_size_{name}", count * size.itemsize))
        return spaces[-2].symbol, spaces[-1].symbol

    def launch(kernel: str, groups: tuple[int, ...], extra: tuple[Arg, ...]) -> Launch:
        global_size = (groups[0] * form.items, *groups[1:], stack)[:3]
        program = result if kernel == "verify_out" else operands
        return Launch(program, kernel, global_size, (form.items, 1, 1), (*gemm_args(plain), *common, *extra))

    x = sums("x", k * stack, form.parts if problem.trans_b else 1)
    t = sums("t", rows, form.parts) if problem.trans_a else x
    u = sums("u", rows) if problem.extras else x
    # What needs no result comes first: then the last rows of out are in the cache when verify_out reads them.
    before = [launch("verify_b", of_b.groups(k, problem.trans_b), x)]
    if problem.extras:  # behind verify_b, which marks columns
        before.append(launch("verify_c", form.groups(m, False), u))
    if problem.trans_b and form.parts > 1:
        before.append(launch("verify_fold", (max(1, -(-k // form.items)), 1), x))
    if problem.trans_a:
        before.append(launch("verify_a", of_b.groups(m, True), (*x, *t)))
    last = (*x, *t, *u, *bound)
    if not problem.is_listed:
        return before, [launch("verify_out", form.groups(m, False), last)], spaces, {}
    listed = in_a_list(
        plain, device, form.rows, max(1, n), lambda tiles: launch("verify_out", (tiles, 1, 1), last)
    )
    return _with_tables(listed, before, spaces)


def _with_tables(listed: Work, before: list[Launch], spaces: list[Workspace]) -> _Checks:
    """The checks of a list: *listed* is the launch of verify_out, each of whose groups takes rows of a
    product, behind that which fills its tables if the device does. The product has others, with its tiles.
    """
    own = [x for x in listed.workspace if not x.zeroed]
    renamed = [replace(x, name=f"verify_{x.name}") for x in own]
    names: dict[Arg, Arg] = {x.symbol: y.symbol for x, y in zip(own, renamed, strict=True)}
    tables = dict(listed.tables)
    if tables:
        _, tiles = LISTED
        names[tiles] = f"verify_{tiles}"
        tables[f"verify_{tiles}"] = tables.pop(tiles)
    *fill, last = (x.renamed(names) for x in listed.launches)
    return [*fill, *(x.renamed(names) for x in before)], [last], [*spaces, *renamed], tables


def _products(problem: GemmProblem) -> int:
    """How many products there are. Of rows that are divided those of no group are one more."""
    if problem.ragged is not None:
        return problem.ragged.groups + _divides_rows(problem)
    return len(problem.products) or max(1, problem.batch)


def _divides_rows(problem: GemmProblem) -> bool:
    return problem.ragged is not None and problem.ragged.axis == "m"


def _program(problem: GemmProblem, name: str, defines: Defines) -> Program:
    made = gemm_program(problem, f"verify/{name}.cl", defines)
    return program_of(problem, made.source, made.defines) if problem.b_format else made


def _form_of_b(problem: GemmProblem, form: _FormOfSums) -> _FormOfSums:
    """That of cl/verify/operands.cl: a work-item adds runs of quantised weights."""
    return replace(form, vec=RUN) if problem.b_format else form


def _type_of_b(problem: GemmProblem) -> str:
    """The type of B's numbers: quantised weights are rounded to A's."""
    return problem.a_type if problem.b_format else problem.b_type


def _plain(problem: GemmProblem) -> GemmProblem:
    """*problem* as the sums of cl/verify/ see it."""
    return replace(problem, reproducible=False, soft_fma=False, moduli=(), dot_bytes=False, fallback=False)


def size_dtype(problem: GemmProblem) -> np.dtype[Any]:
    """Of sums of sizes, and of what the verdict says of them."""
    return dtype_of("float64" if problem.acc_type in ("float64", "complex128") else "float32")


def _defines(problem: GemmProblem, form: _FormOfSums, device: DeviceInfo) -> Defines:
    # AMX's and gfx90a's matrix units take subnormal operands for 0. A device that flushes does so with sums
    # too: those of numbers from `least` on are multiples of the least normal float32.
    flushes = device.flushes or device.amx.types or device.gfx == "gfx90a"
    sizes, of_b = size_dtype(problem), _type_of_b(problem)
    kinds = {name: ELEMENTS[name] for name in _FLOATS}
    least = {name: 2.0 ** (max(x.exponents[0], -126) + x.significand - 1) for name, x in kinds.items()}
    return (
        ("SIZE_TYPE", sizes.name), ("ITEMS", form.items), ("ROWS", form.rows), ("VEC", form.vec),
        ("LANES", form.lanes), ("SLICES", form.slices), ("PARTS", form.parts),
        ("WIDE_A", int(form.is_wide(problem.a_align, ELEMENTS[problem.a_type].nbytes))),
        ("WIDE_B", int(form.is_wide(problem.b_align, ELEMENTS[problem.b_type].nbytes))),
        ("WIDE_OUT", int(form.is_wide(problem.out_align, ELEMENTS[problem.out_type].nbytes))),
        ("WIDE_SUMS", int(form.is_wide(_align_of_sums(problem, form), sizes.itemsize))),
        ("WITH_BOUND", int(problem.sums.significand > 0)),
        ("LEAST_A", f"{least[problem.a_type]!r}f" if flushes and problem.a_type in least else "0"),
        ("LEAST_B", f"{least[of_b]!r}f" if flushes and of_b in least else "0"),
        ("WEIGHTS", int(bool(problem.b_format))), ("DIVIDED", int(_divides_rows(problem))),
    )  # fmt: skip


def _align_of_sums(problem: GemmProblem, form: _FormOfSums) -> int:
    """What the sums of B begin at multiples of, in bytes, in each product of a stack."""
    if _products(problem) <= 1:
        return ACCESS
    return problem.k * (form.parts if problem.trans_b else 1) * size_dtype(problem).itemsize


def _bound(problem: GemmProblem, form: _FormOfSums) -> tuple[float, float, float, float]:
    """The bound of a row's sum relative to sum |a| |b|; what subnormal numbers may lose in sums of products,
    and in the rest; the largest number of out."""
    if not problem.sums.significand:
        return 0.0, 0.0, 0.0, 0.0
    u = 2.0**-problem.sums.significand
    least, end = ELEMENTS[problem.out_type].exponents
    lowest = 2.0**-1074 if u < 2.0**-24 else 2.0**-126  # that a sum of a device keeps
    lost, rest = problem.n * (problem.k + 4) * lowest, problem.n * (2.0**least + 4 * lowest)
    return _factor(problem, form), lost, rest, 2.0 ** (end - 1)


def _factor(problem: GemmProblem, form: _FormOfSums) -> float:
    """The rounding errors of a row's sum over sum |a| |b|: docs/precision.md's, and those of cl/verify/."""
    u = 2.0**-problem.sums.significand
    out = ELEMENTS[problem.out_type]
    of_b = _form_of_b(problem, form)
    own = (
        of_b.chain(problem.n, problem.trans_b)
        + of_b.chain(problem.k, problem.trans_a)
        + form.chain(problem.n, False)
        + (problem.n // form.items + form.chain(0, False) if problem.extras else 0)  # verify_c has no lanes
    )
    factor = u * (problem.k + 16 + own)
    if problem.precision == "medium" and problem.a_type in ("float32", "complex64"):
        factor += 2.0**-10
    if problem.acc_type in COMPLEX:
        factor *= 4  # each part is a sum of 2 K products, and both parts are added
    if out.significand < problem.sums.significand:
        factor += 2.0**-out.significand
    return _SLACK * factor
