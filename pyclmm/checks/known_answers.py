"""Runs a kernel on a small problem with a known answer, and measures the error of the result.

The operands are made so that mistakes show. Products of small integers must be exact, products of random
numbers must be within the error bound. Padding, workspace, and operands that must not be read hold NaN or
large values. The memory behind the result and between its rows must not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from ..kernels.device import DeviceInfo
from ..kernels.interface import Work, round_up
from ..opencl import host_memory, status, workspace
from ..opencl.binding import Binding
from ..opencl.launches import complete
from ..opencl.steps import scalars_of
from ..problem import dtypes
from ..problem.gemm import ACTIVATIONS, Gemm, GemmProblem
from . import fixed_products, reference

Array = np.ndarray[Any, np.dtype[Any]]

_CANARY = 127  # elements behind the result that must not change
_ALPHA, _BETA = 1.3, -0.7  # of reproducible problems: no powers of two, so that each operation rounds
_FILL = 0xA5  # every byte of the result's memory before the run


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: what is wrong, or None; the largest error ``ratio``, and its ``limit``.

    ``ratio`` is the test ratio of Netlib's tests (see reference.py); 0 if the result is exact.
    """

    reason: str | None
    ratio: float = 0.0
    limit: float = reference.NETLIB_RATIO


def outcome(
    queue: cl.CommandQueue,
    problem: GemmProblem,
    work: Work,
    device: DeviceInfo,
    rng: np.random.Generator,
    exact: bool,
    spread: int | None = None,
) -> Outcome:
    """Run *problem* by *work* on small integers (*exact*) or random numbers, and compare the result.

    *spread*: operands that ``precision`` applies to are scaled by powers of two that differ along K and lie
    around 2^spread.
    """
    case = _case(problem, partial(_numbers, rng, exact=exact), exact)
    if spread is not None and _precision_applies(problem):
        _spread_along_k(case.a, case.b, problem, spread, rng)
        _poison_padding(case)
    return _judged(queue, case, work, device)


def wrong_bits(
    queue: cl.CommandQueue, problem: GemmProblem, work: Work, device: DeviceInfo, data: str
) -> str | None:
    """Run a reproducible *problem* by *work* on fixed numbers, and compare its bits with those of the host.

    *data*: as for :func:`.fixed_products.numbers`. Returns what is wrong, or None.
    """
    fault = fixed_products.host_fault(problem.acc_type)
    if fault is not None:
        return fault
    names = iter(("a", "b", "c", "bias"))
    case = _case(problem, lambda shape, name: fixed_products.numbers(next(names), shape, name, data), False)
    case = replace(case, alpha=_ALPHA, beta=_BETA if problem.has_c else 0.0)
    flat, clean = _run(queue, case, work, device)
    p = problem
    got = np.ascontiguousarray(flat.reshape(*p.batch_shape, p.m, p.ldo)[..., : p.n])
    same = clean and fixed_products.digest(got) == fixed_products.digest(_chained(case))
    return None if same else f"{data} numbers did not give the bits of fused multiply-adds in order"


def _chained(case: _Case) -> Array:
    p = case.problem
    a = _operand(case.a, p.trans_a, p.conj_a, (p.m, p.k))
    b = _operand(case.b, p.trans_b, p.conj_b, (p.k, p.n))
    bias = {"none": None, "row": case.bias, "column": case.bias[:, None]}[p.bias]
    c = case.c if p.has_c else None
    return reference.chain(
        *(a, b, c), alpha=case.alpha, beta=case.beta, bias=bias, activation=p.activation,
        dtype=dtypes.dtype_of(p.out_type),
    )  # fmt: skip


@dataclass(frozen=True)
class _Case:
    """The operands of a small problem on the host, and whether its result must be exact."""

    problem: GemmProblem
    a: Array
    b: Array
    c: Array
    bias: Array
    alpha: float
    beta: float
    exact: bool


def resized(problem: GemmProblem, m: int, n: int, k: int) -> GemmProblem:
    """*problem* with other sizes. Rows keep their alignment and are padded by at least one element.

    A vector with a leading dimension of 1 keeps it, because some kernels support no other.
    """

    def leading(length: int, align: int, name: str, own: int) -> int:
        if length == own == 1:
            return 1
        elements = max(1, align // dtypes.dtype_of(name).itemsize)
        return round_up(length + 1, elements)

    lda = leading(m if problem.trans_a else k, problem.a_align, problem.a_type, problem.lda)
    ldb = leading(k if problem.trans_b else n, problem.b_align, problem.b_type, problem.ldb)
    ldo = leading(n, problem.out_align, problem.out_type, problem.ldo)
    batch = (2,) if problem.batch_shape else ()
    rows = (k if problem.trans_a else m, n if problem.trans_b else k)
    strides = ((rows[0] * lda,), (rows[1] * ldb,), (m * n,), (m * ldo,)) if batch else ((),) * 4
    return replace(
        problem,
        m=m,
        n=n,
        k=k,
        lda=lda,
        ldb=ldb,
        ldo=ldo,
        batch_shape=batch,
        batch_strides=strides,
        c_strides=(n, 1),
        bias_stride=1,
    )


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], name: str, exact: bool) -> Array:
    dtype = dtypes.dtype_of(name)
    if dtype.kind in "biu" or exact:
        low = 0 if dtype.kind in "bu" else -3
        values: Array = rng.integers(low, 4, shape).astype(np.float64)
        if dtype.kind == "c":
            values = values + 1j * rng.integers(-3, 4, shape)
        return np.asarray(values.astype(dtype))
    values = rng.standard_normal(shape)
    if dtype.kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values.astype(dtype))


def _spread_along_k(a: Array, b: Array, p: GemmProblem, around: int, rng: np.random.Generator) -> None:
    """Scale A by 2^(around + s) and B by 2^(around - s) at each k, for a random s in -30 to 30."""
    s = rng.integers(-30, 31, p.k)
    if p.trans_a:
        a *= np.exp2(around + s).astype(a.dtype)[:, None]
    else:
        a[..., : p.k] *= np.exp2(around + s).astype(a.dtype)
    if p.trans_b:
        b[..., : p.k] *= np.exp2(around - s).astype(b.dtype)
    else:
        b *= np.exp2(around - s).astype(b.dtype)[:, None]


def _case(problem: GemmProblem, draw: Callable[[tuple[int, ...], str], Array], exact: bool) -> _Case:
    """The case whose arrays *draw* gives, by shape and type."""
    batch = problem.batch_shape
    a_rows = problem.k if problem.trans_a else problem.m
    b_rows = problem.n if problem.trans_b else problem.k
    a = draw((*batch, a_rows, problem.lda), problem.a_type)
    b = draw((*batch, b_rows, problem.ldb), problem.b_type)
    c = draw((*batch, problem.m, problem.n), problem.c_type)
    bias = draw((problem.n if problem.bias == "row" else problem.m,), problem.bias_type)
    case = _Case(
        problem,
        a=a,
        b=b,
        c=c,
        bias=bias,
        alpha=2.0,
        beta=3.0 if problem.has_c else 0.0,
        exact=exact and problem.activation in ("none", "relu"),
    )
    _poison_padding(case)
    return case


def _poison_padding(case: _Case) -> None:
    """Poison the padding of the operands, and what must not be read."""
    p = case.problem
    _poison(case.a[..., p.m if p.trans_a else p.k :])
    _poison(case.b[..., p.k if p.trans_b else p.n :])
    for unread in ([] if p.has_c else [case.c]) + ([case.bias] if p.bias == "none" else []):
        _poison(unread)


def _poison(padding: Array) -> None:
    """Fill padding so that reading it changes the result, even if it is multiplied by zero."""
    padding[...] = 99 if padding.dtype.kind in "biu" else np.nan


def _operand(stored: Array, trans: bool, conj: bool, shape: tuple[int, int]) -> Array:
    """op(X) of a stack that is stored with padding."""
    x = np.swapaxes(stored, -1, -2) if trans else stored
    x = x[..., : shape[0], : shape[1]]
    return x.conj() if conj else x


def _expected(case: _Case) -> tuple[Array, Array]:
    """(the result before rounding, the scale of its rounding errors: |alpha| |A| |B| + |beta C| + |bias|)."""
    p = case.problem
    wide: Any = np.int64 if p.acc_type.startswith("uint") else np.float64
    wide = np.complex128 if p.acc_type in dtypes.COMPLEX else wide
    a = _operand(case.a, p.trans_a, p.conj_a, (p.m, p.k)).astype(wide)
    b = _operand(case.b, p.trans_b, p.conj_b, (p.k, p.n)).astype(wide)
    alpha, beta = wide(case.alpha), wide(case.beta)
    value, scale = alpha * _product(a, b), abs(alpha) * _product(abs(a), abs(b))
    if p.has_c:
        value, scale = value + beta * case.c.astype(wide), scale + abs(beta * case.c.astype(wide))
    if p.bias != "none":
        bias = case.bias.astype(wide)
        bias = bias if p.bias == "row" else bias[:, None]
        value, scale = value + bias, scale + abs(bias)
    return reference.activate(value, ACTIVATIONS.index(p.activation)), scale


def _product(a: Array, b: Array) -> Array:
    """a @ b. Small integers go through float64, which is exact for them and much faster."""
    if a.dtype.kind != "i":
        return np.asarray(a @ b)
    return np.asarray((a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype))


def _judged(queue: cl.CommandQueue, case: _Case, work: Work, device: DeviceInfo) -> Outcome:
    p = case.problem
    flat, clean = _run(queue, case, work, device)
    if not clean:
        return Outcome("memory behind the result was overwritten", np.inf)
    got = flat.reshape(*p.batch_shape, p.m, p.ldo)
    if (got[..., p.n :].view(np.uint8) != _FILL).any():
        return Outcome("the padding between rows was overwritten", np.inf)
    expected, scale = _expected(case)
    return _compared(got[..., : p.n], expected, scale, case)


def _compared(got: Array, expected: Array, scale: Array, case: _Case) -> Outcome:
    dtype = got.dtype
    if dtype.kind in "biu":
        right = np.array_equal(got, expected.astype(dtype) if dtype.kind != "b" else expected != 0)
        return _exactly(right)
    wide = got.astype(np.complex128 if dtype.kind == "c" else np.float64)
    u_out = reference.unit_roundoff(dtype)
    if case.exact and abs(expected).max(initial=0) < 1 / u_out:
        return _exactly(np.array_equal(wide, expected))
    u_sum = reference.unit_roundoff(dtypes.dtype_of(case.problem.acc_type))
    rounding = 2 * u_out * (abs(expected) + 1e-30)  # of the stored result
    limit = reference.limit(case.problem.k)
    if not np.isfinite(wide).all():
        return Outcome("finite data gave a NaN or an infinity", np.inf, limit)
    rounding = rounding + operands_error(case.problem) * scale
    excess = np.maximum(abs(wide - expected) - rounding, 0) / (u_sum * (scale + 1))
    ratio = float(np.max(excess, initial=0.0))
    return Outcome("random data gave an error over the bound" if ratio > limit else None, ratio, limit)


def _precision_applies(problem: GemmProblem) -> bool:
    """Whether ``precision`` applies to the types of its operands."""
    return problem.a_type == problem.b_type and problem.a_type in ("float32", "complex64")


def operands_error(problem: GemmProblem) -> float:
    """The relative error of each product that "medium" allows, because it rounds both operands to TF32."""
    return 2.0**-10 if problem.precision == "medium" and _precision_applies(problem) else 0.0


def _exactly(right: bool) -> Outcome:
    return Outcome(None) if right else Outcome("integer data gave an inexact result", np.inf)


def _run(queue: cl.CommandQueue, case: _Case, work: Work, device: DeviceInfo) -> tuple[Array, bool]:
    """(the result's memory with its padding, whether the canary behind it is unchanged)."""
    p = case.problem
    dtype = dtypes.dtype_of(p.out_type)
    binding = Binding(queue, device, complete(Gemm(p, (p.m, p.n), dtype), work), lend=workspace.poisoned)
    size = p.batch * p.m * p.ldo * dtype.itemsize
    memory = np.full(size + _CANARY * dtype.itemsize, _FILL, np.uint8)
    buffers: dict[str, cl.Buffer] = {}
    for name in ("a", "b", "c", "bias", "out"):
        data = memory if name == "out" else getattr(case, name)
        content = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        content = content if data.size else np.zeros(1, np.uint8)
        buffers[name] = host_memory.filled(queue.context, content, device, name)
    try:
        events = binding.enqueue(buffers, scalars_of(case.alpha, case.beta), [])
        cl.enqueue_copy(queue, memory, buffers["out"], wait_for=events[-1:], is_blocking=True)
    except cl.Error as error:
        raise status.lost(device, error) from error
    binding.settle()
    return memory[:size].view(dtype), bool((memory[size:] == _FILL).all())
