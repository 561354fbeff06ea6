"""Runs a kernel on a small problem with a known answer, and measures the error of the result.

The operands are made so that mistakes show. Products of small integers must be exact, products of random
numbers must be within the error bound. Alpha and beta are drawn. Padding, workspace, and operands that must
not be read hold NaN or large values. The memory around the result and between its rows must not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyopencl as cl

from ..formats import format_named, ordered
from ..kernels.device import DeviceInfo
from ..kernels.interface import Work
from ..kernels.launches import complete
from ..opencl.launcher import launcher_of
from ..opencl.program import new_kernel
from ..opencl.steps import scalars_of
from ..problem import dtypes
from ..problem.extras import EXTRAS
from ..problem.gemm import ACTIVATIONS, Gemm, GemmProblem
from . import fixed_products, lists, reference
from .drawn import Drawn, Factors, draw, drawn_weights, scalars, sums_are_exact
from .fma_reference import parts_of
from .layouts import Array, Decks, Placed, is_in_place, placed

_ALPHA, _BETA = 1.3, -0.7  # of reproducible problems: no powers of two, so that each operation rounds
_MOST_OF_EINSUM = 1 << 25  # multiply-adds of a product
P = ParamSpec("P")
T = TypeVar("T")
FILL = 0xA5  # every byte of the result's memory before the run
_ALWAYS_THERE = ("a", "b", "c", "bias")  # what the product does not ask for must not be read


@dataclass(frozen=True, eq=False)
class Wrong:
    """A result with wrong elements: ``where`` they are, what was ``got``, and what is ``right``."""

    where: Array  # bool
    got: Array
    right: Array


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: what is wrong, or None; the largest error ``ratio``, and its ``limit``.

    ``ratio`` is the test ratio of Netlib's tests (see reference.py); 0 if the result is exact. ``wrong``: the
    wrong elements, where the reason is that there are some.
    """

    reason: str | None
    ratio: float = 0.0
    limit: float = reference.NETLIB_RATIO
    wrong: Wrong | None = None


@dataclass(frozen=True)
class Case:
    """The operands of a small problem in memory on the host, and what they are like."""

    problem: GemmProblem
    operands: dict[str, Placed]
    alpha: complex
    beta: complex
    drawn: Drawn
    factors: Factors | None = None  # of op(B), before it is conjugated

    def view(self, name: str) -> Array:
        return self.operands[name].view

    def matrix(self, name: str) -> Array:
        """op(A) or op(B)."""
        p = self.problem
        x = self.view(name)
        if name == "b" and p.b_format:
            x = _weights(p, x)
        trans, conj = (p.trans_a, p.conj_a) if name == "a" else (p.trans_b, p.conj_b)
        x = np.swapaxes(x, -1, -2) if trans else x
        if name == "a" and p.quantize_a:
            x = reference.int8_groups(x, format_named(p.b_format))
        return x.conj() if conj else x

    def extra(self, name: str) -> Array:
        """An extra, so that it broadcasts to the result."""
        return EXTRAS[name].spread(self.problem, self.view(name))


def quietly(function: Callable[P, T]) -> Callable[P, T]:
    """*function* with nothing raised or told of overflow and the like, whatever np.errstate the caller has.
    As a decorator np.errstate is a frame between, which a warning would name as the caller.
    """

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> T:
        with np.errstate(all="ignore"):
            return function(*given, **named)

    return called


@quietly
def outcome(
    queue: Any, problem: GemmProblem, work: Work, device: DeviceInfo, decks: Decks, drawn: Drawn
) -> Outcome:
    """Run *problem* by *work* on numbers that are *drawn* so, and compare the result."""
    case = drawn_case(problem, decks, drawn)
    got, clean = _run(queue, case, work, device, decks.kernel)
    if not clean:
        return Outcome("memory around the result, or between its rows, was overwritten", np.inf)
    return _compared(got, *expected(case), case)


def drawn_case(problem: GemmProblem, decks: Decks, drawn: Drawn) -> Case:
    """*problem* with operands, alpha and beta that are *drawn* so."""
    case = Case(problem, _memory(problem, decks.rng), *scalars(problem, decks, drawn), drawn)
    views = {name: operand.view for name, operand in case.operands.items() if name in _read(problem)}
    case = replace(case, factors=draw(problem, views, decks.rng, drawn))
    lists.poison(problem, views)
    return case


@quietly
def wrong_bits(queue: Any, problem: GemmProblem, work: Work, device: DeviceInfo, data: str) -> str | None:
    """Run a reproducible *problem* by *work* on fixed numbers, and compare its bits with those of the host.
    *data*: as for :func:`.fixed_products.numbers`. Returns what is wrong, or None.
    """
    fault = fixed_products.host_fault(problem.acc_type)
    if fault is not None:
        return fault
    memory = _memory(problem, np.random.default_rng(0))
    for name in _read(problem):
        x = memory[name].view
        if name == "b" and problem.b_format:
            x[...] = drawn_weights(problem, x.shape[:-1], np.random.default_rng(0), Drawn.REALS)
            continue
        x[...] = fixed_products.numbers(name, x.shape, dtypes.type_name(x.dtype, name), data)
    lists.poison(problem, {name: memory[name].view for name in _read(problem)})
    case = Case(problem, memory, _ALPHA, _BETA if problem.has_c else 0.0, Drawn.REALS)
    got, clean = _run(queue, case, work, device, new_kernel)
    same = clean and fixed_products.digest(np.ascontiguousarray(got)) == fixed_products.digest(_chained(case))
    return None if same else f"{data} numbers did not give the bits of fused multiply-adds in order"


def _weights(p: GemmProblem, rows: Array) -> Array:
    """The values of quantised weights, (..., N, K), as they are multiplied: rounded to A's type, but for a
    rounded A."""
    form, rows = ordered(format_named(p.b_format), rows, p.k, "rows")
    values = form.dequantize(rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1]), p.k)
    values = values if p.quantize_a else values.astype(dtypes.dtype_of(p.a_type))
    return values.reshape(*rows.shape[:-1], p.k)


def _read(problem: GemmProblem) -> tuple[str, ...]:
    """The operands that kernels may read."""
    return ("a", "b", *problem.extras)


def _memory(problem: GemmProblem, rng: np.random.Generator) -> dict[str, Placed]:
    """Poison for each operand: it changes the result if it is read, even if it is multiplied by zero."""
    memory = {}
    for name in dict.fromkeys((*_ALWAYS_THERE, *problem.extras)):
        kind = dtypes.dtype_of(getattr(problem, f"{name}_type")).kind
        memory[name] = placed(problem, name, int(rng.integers(3)), 99 if kind in "biu" else np.nan)
    if problem.ragged is not None:
        sizes = memory["group_sizes"] = placed(problem, "group_sizes", int(rng.integers(3)), 99)
        sizes.view[...] = lists.group_sizes(problem, problem.ragged, rng)
    return memory


def _parts(case: Case) -> Iterator[tuple[tuple[Any, ...], Case]]:
    """The products of a list, and where each is in the result."""
    read = (*_read(case.problem), *(["group_sizes"] if case.problem.ragged else []))
    views = {name: case.view(name) for name in read}
    for where, problem, own, alpha, beta in lists.parts(case.problem, views):
        operands = {name: Placed(x, x, 0) for name, x in own.items()}
        yield where, replace(case, problem=problem, operands=operands, alpha=alpha, beta=beta, factors=None)


def _chained(case: Case) -> Array:
    p = case.problem
    if p.is_listed:
        found = np.zeros(placed(p, "out", 0, 0).view.shape, dtypes.dtype_of(p.out_type))
        for where, part in _parts(case):
            found[where] = _chained(part)
        return found
    return reference.chain(
        case.matrix("a"), case.matrix("b"), case.view("c") if p.has_c else None, alpha=case.alpha,
        beta=case.beta, bias=None if p.bias == "none" else case.extra("bias"), activation=p.activation,
        dtype=dtypes.dtype_of(p.out_type),
    )  # fmt: skip


def expected(case: Case) -> tuple[Array, Array | float]:
    """(the result before rounding, the scale of its rounding errors: |alpha| |A| |B| + |beta C| + |bias|).
    The scale of an exact result is 0, because nothing is rounded.
    """
    p, exact = case.problem, sums_are_exact(case.problem, case.drawn)
    if p.is_listed:
        return _expected_of_list(case)
    wide: Any = np.int64 if p.acc_type.startswith("uint") else np.float64
    wide = np.complex128 if p.acc_type in dtypes.COMPLEX else wide
    value = _scaled(wide(case.alpha), _product_of(case, wide))
    scale: Array | float = 0.0
    if not exact:
        scale = abs(case.alpha) * _product(*(abs(case.matrix(name).astype(wide)) for name in ("a", "b")))
    for name, extra in EXTRAS.items():
        if name in p.extras:
            term = case.extra(name).astype(wide)
            term = _scaled(wide(case.beta), term) if extra.is_times_beta else term
            value, scale = extra.combine(value, term), scale if exact else extra.combine(scale, abs(term))
    return reference.activate(value, ACTIVATIONS.index(p.activation)), scale


def _expected_of_list(case: Case) -> tuple[Array, Array]:
    """The same for a list. What is of no product is zero, as :func:`_run` gives it."""
    shape = placed(case.problem, "out", 0, 0).view.shape
    found = [(where, expected(part)) for where, part in _parts(case)]
    value, scale = np.zeros(shape, found[0][1][0].dtype), np.zeros(shape)
    for where, (own, its_scale) in found:
        value[where], scale[where] = own, its_scale
    return value, scale


def _scaled(scalar: Any, x: Array) -> Array:
    """*scalar* times *x*. A real scalar multiplies real and imaginary parts apart, as kernels do."""
    if x.dtype.kind != "c" or scalar.imag:
        return np.asarray(scalar * x)
    return np.asarray((parts_of(x) * scalar.real).view(x.dtype)[..., 0])


def _product_of(case: Case, wide: Any) -> Array:
    """op(A) @ op(B), summed in type *wide*. Sums of 20,000 products of small integers are less than 2^24, and
    half as many bytes take half the time.
    """
    if case.factors is None:
        return _product(case.matrix("a").astype(wide), case.matrix("b").astype(wide))
    a = case.matrix("a").astype(np.complex64 if wide is np.complex128 else np.float32)
    columns, rows = case.factors
    return _product(_product(a, columns), rows.conj() if case.problem.conj_b else rows).astype(wide)


def _product(a: Array, b: Array) -> Array:
    """a @ b. BLAS may leave out products by zero, and takes milliseconds to wake its threads: only products
    of the tuner are large enough for it. Of complex numbers einsum adds up the real parts faster.
    """
    if a.dtype.kind == "f" and a.shape[-2] * b.size > _MOST_OF_EINSUM:
        return np.asarray(a @ b)
    if a.dtype.kind != "c":
        return np.asarray(np.einsum("...ik,...kj->...ij", a, b))
    real, imag = (_product(part.copy("K"), b.real.copy("K")) for part in (a.real, a.imag))
    value = np.empty(real.shape, a.dtype)
    if b.dtype.kind == "c":
        real -= _product(a.imag.copy("K"), b.imag.copy("K"))
        imag += _product(a.real.copy("K"), b.imag.copy("K"))
    value.real, value.imag = real, imag
    return value


def _compared(got: Array, expected: Array, scale: Array | float, case: Case) -> Outcome:
    dtype = got.dtype
    if dtype.kind in "biu":
        right = expected.astype(dtype) if dtype.kind != "b" else expected != 0
        return _exactly(got, right, got == right)
    parts = np.float64 if dtype.kind != "c" else np.complex128
    wide, rounded = (parts_of(x.astype(parts)) for x in (got, expected.astype(dtype)))
    same = (wide == rounded) | (np.isnan(wide) & np.isnan(rounded))
    if sums_are_exact(case.problem, case.drawn):
        return _exactly(got, expected, _of_elements(same, got))
    u_out = reference.unit_roundoff(dtype)
    finite = np.isfinite(rounded) & np.isfinite(wide)
    u_sum = reference.unit_roundoff(dtypes.dtype_of(case.problem.acc_type))
    limit = reference.limit(case.problem.k)
    if not (fits := _of_elements(same | finite, got)).all():
        reason = "a NaN or an infinity is missing, or not expected"
        return Outcome(reason, np.inf, limit, Wrong(~fits, got, expected))
    finite = _of_elements(finite, got)
    error, size = (abs(x) for x in (got.astype(parts) - expected, expected))
    allowed = 2 * u_out * (size + 1e-30) + operands_error(case.problem) * scale  # of the stored result
    excess = np.maximum(error - allowed, 0) / (u_sum * (scale + 1))
    ratio = float(np.max(excess, initial=0.0, where=finite))
    if ratio > limit:
        reason = "random data gave an error over the bound"
        return Outcome(reason, ratio, limit, Wrong(finite & (excess > limit), got, expected))
    return Outcome(None, ratio, limit)


def operands_error(problem: GemmProblem) -> float:
    """The relative error of each product that "medium" allows, because it rounds both operands to TF32."""
    single = problem.a_type == problem.b_type and problem.a_type in ("float32", "complex64")
    return 2.0**-10 if problem.precision == "medium" and single else 0.0


def _of_elements(parts: Array, got: Array) -> Array:
    """Whether that holds for both parts of complex elements; for others as it is."""
    return np.asarray(parts.all(-1)) if got.dtype.kind == "c" else parts


def _exactly(got: Array, right: Array, same: Array) -> Outcome:
    if same.all():
        return Outcome(None)
    return Outcome("integer data gave an inexact result", np.inf, wrong=Wrong(~same, got, right))


def _run(
    queue: Any, case: Case, work: Work, device: DeviceInfo, make: Callable[..., cl.Kernel]
) -> tuple[Array, bool]:
    """(the result, whether the memory around it and between its rows is unchanged)."""
    p = case.problem
    dtype = dtypes.dtype_of(p.out_type)
    out = placed(p, "out", 1, 0)
    out.memory[...] = FILL
    operands = {**case.operands, "out": out}
    if is_in_place(p):
        out.view[...] = case.view("c")
        operands["c"] = out
    whole, before = complete(Gemm(p, (p.m, p.n), dtype), work, device), out.view.copy()
    got, clean = computed(queue, device, whole, operands, (case.alpha, case.beta), make)
    if p.is_listed:
        of_none = np.ones(got.shape, bool)
        for where, _ in _parts(case):
            of_none[where] = False
        clean = clean and got[of_none].tobytes() == before[of_none].tobytes()
        got[of_none] = 0
    return got, clean


def computed(
    queue: Any,
    device: DeviceInfo,
    work: Work,
    operands: Mapping[str, Placed],
    scales: tuple[complex, complex] = (1.0, 0.0),
    make: Callable[..., cl.Kernel] = new_kernel,
) -> tuple[Array, bool]:
    """(the result of *work*, whether the memory around it and between its rows is unchanged). *operands* by
    the problem's names. "out", which may be "c" too, is full of FILL. *scales*: alpha, beta.
    """
    out = operands["out"]
    memory = {name: operand.memory for name, operand in operands.items()}
    offsets = {name: operand.offset for name, operand in operands.items()}
    launcher_of(queue).compute(queue, device, work, memory, scalars_of(*scales, offsets), make)
    got = out.view.copy()
    out.own_bytes[...] = FILL
    return got, bool((out.memory == FILL).all())
