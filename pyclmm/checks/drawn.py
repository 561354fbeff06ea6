"""The numbers of a small problem: what is drawn for its operands, alpha and beta."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np

from ..formats import format_named, in_rows, ordered
from ..problem import dtypes
from ..problem.gemm import GemmProblem
from .fma_reference import parts_of
from .layouts import Array, Decks

_REAL: tuple[complex, ...] = (2.0, 0.5, -1.0, 3.0, -0.75, 1.0, -1.5, 0.25)  # sums with them stay exact
_COMPLEX: tuple[complex, ...] = (0.5 - 2j, -1 + 1j, 2j, 1.5 + 0.25j)
_WHOLE: tuple[complex, ...] = (2, -1, 3, 5, -7, 1, 100_003)
# Small integers by the kind of their type, to be looked up by a random byte: faster than to draw them.
_SMALL = {
    kind: np.resize(np.arange(low, high, dtype=np.int8), 256)
    for kind, low, high in (("b", 0, 2), ("u", 0, 4), ("i", -3, 4))
}
_MOST_TERMS = 1 << 19  # of a product that einsum adds up in less than a millisecond
_HEADROOM = 4  # with EXTREMES, sums over 2^4 are over the result's largest number


Factors = tuple[Array, Array]  # (..., K, 2) and (..., 2, N)


class Drawn(Enum):
    """What the operands' elements are.

    INTEGERS: small ones, whose products are exact. REALS: normally distributed; integers over their whole
    range. SPREAD, LARGE: reals scaled by powers of two that differ along K, around 1 or around 2^50.
    EXTREMES: the least and greatest integers; floats with NaN, infinity, and sums that overflow to it.
    """

    INTEGERS = "integers"
    REALS = "reals"
    SPREAD = "spread"
    LARGE = "large"
    EXTREMES = "extremes"


_AROUND = {Drawn.SPREAD: 0, Drawn.LARGE: 50}


def scalars(problem: GemmProblem, decks: Decks, drawn: Drawn) -> tuple[complex, complex]:
    """alpha and beta. Half of those of complex problems are complex. A list has its own."""
    if problem.is_listed:
        return 1.0, 0.0
    kind, pool = "whole", _WHOLE
    if not problem.acc_type.startswith("uint"):
        is_complex = problem.acc_type in dtypes.COMPLEX and decks.next("is complex", (True, False))
        kind, pool = ("complex", _COMPLEX) if is_complex else ("real", _REAL)
    alpha, beta = (decks.next(f"{kind} {name}", pool) for name in ("alpha", "beta"))
    if _overflows(problem, drawn):
        alpha = 2.0 ** (dtypes.ELEMENTS[problem.out_type].exponents[1] - _HEADROOM)
    return alpha, beta if problem.has_c else 0.0


def _overflows(problem: GemmProblem, drawn: Drawn) -> bool:
    element = dtypes.ELEMENTS[problem.out_type]
    real = element.significand > 0 and element.planes == 1
    return (
        drawn is Drawn.EXTREMES and real and not problem.b_format and problem.activation in ("none", "relu")
    )


def sums_are_exact(problem: GemmProblem, drawn: Drawn) -> bool:
    """Whether only the result may be rounded."""
    whole = drawn in (Drawn.INTEGERS, Drawn.EXTREMES) and not problem.b_format
    return whole and problem.activation in ("none", "relu")


def draw(
    problem: GemmProblem, operands: dict[str, Array], rng: np.random.Generator, drawn: Drawn
) -> Factors | None:
    """Fill the arrays of *operands*: "a" and "b" as they are stored, and extras. Returns the factors of
    op(B) without its conjugation, where small integers of a large product have any.
    """
    p, factors = problem, None
    for name, x in operands.items():
        if name == "b" and _has_factors(p) and drawn is Drawn.INTEGERS and sums_are_exact(p, drawn):
            factors = _fill_by_factors(np.swapaxes(x, -1, -2) if p.trans_b else x, rng)
            continue
        if name == "b" and p.b_format:
            x[...] = drawn_weights(p, x.shape[:-1], rng, drawn)
            continue
        parts = parts_of(x)
        parts[...] = _numbers(rng, parts.shape, parts.dtype, drawn, p.acc_type)
    if p.out_type == "bool":  # of long sums nearly none would be zero
        for x in (operands["a"], operands["b"]) if factors is None else (operands["a"],):
            x[...] &= _is_kept(rng, x.shape, p.k)
    if drawn in _AROUND:
        _spread_along_k(problem, operands, _AROUND[drawn], rng)
    if drawn is Drawn.EXTREMES:
        _make_special(problem, operands, rng)
    return factors


def drawn_weights(p: GemmProblem, lines: tuple[int, ...], rng: np.random.Generator, drawn: Drawn) -> Array:
    """Random rows of the problem's quantised weights, for *lines* of B.

    Affine ones for INTEGERS are as ``quantize`` makes them of a layer: kernels have a quicker way for weights
    whose scales and biases are all ordinary. Others may have any scales.
    """
    wanted, count = format_named(p.b_format), math.prod(lines)
    form = in_rows(wanted)
    if drawn is Drawn.INTEGERS and form.mode == "affine":
        rows = form.quantize(rng.standard_normal((count, p.k), np.float32) / 32)
    else:
        rows = form.drawn(rng, count, p.k)
    return ordered(form, rows.reshape(*lines, rows.shape[-1]), p.k, wanted.order)[1]


def _has_factors(p: GemmProblem) -> bool:
    """Whether the product is large, and B's type holds sums of two products, which have up to 5 bits."""
    return p.m * p.n * p.k > _MOST_TERMS and not 0 < dtypes.ELEMENTS[p.b_type].significand < 5


def _fill_by_factors(b: Array, rng: np.random.Generator) -> Factors:
    """Fill *b*, (..., K, N), with products of small integers, (..., K, 2) by (..., 2, N), which are returned.
    So A @ B is known after a few operations. Products that share memory have the same factors.
    """
    parts = parts_of(b)
    kind, (k, n) = parts.dtype, b.shape[-2:]
    stack = tuple(length if step else 1 for length, step in zip(b.shape, b.strides, strict=True))[:-2]
    columns, rows = (
        _numbers(rng, (*stack, 2, length), kind, Drawn.INTEGERS, "").astype(np.float32)
        for length in (k, n * parts[0].size // b[0].size)
    )
    if kind.kind == "b":
        columns *= _is_kept(rng, columns.shape, k)
    parts[...] = np.einsum("...fk,...fn->...kn", columns, rows).reshape(*stack, *parts.shape[len(stack) :])
    return np.swapaxes(columns, -1, -2), rows.view(np.complex64) if b.dtype.kind == "c" else rows


def _is_kept(rng: np.random.Generator, shape: tuple[int, ...], k: int) -> Array:
    return np.asarray(rng.random(shape) < max(1, k) ** -0.5)


def _numbers(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], drawn: Drawn, acc_type: str
) -> Array:
    whole = dtype.kind in "iu"
    if whole and (drawn is Drawn.REALS or (drawn is Drawn.EXTREMES and acc_type.startswith("uint"))):
        return over_the_range(rng, shape, dtype)
    if drawn in (Drawn.INTEGERS, Drawn.EXTREMES) or dtype.kind in "biu":
        those = _SMALL.get(dtype.kind, _SMALL["i"])
        found = those.take(np.frombuffer(rng.bytes(math.prod(shape)), np.uint8)).reshape(shape)
        return found | 1 if found.size == 1 else found  # a single 0 would hide what is lost
    return rng.standard_normal(shape)


def over_the_range(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Integers of the type, of which half are its least, its greatest, or next to them."""
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.min + 1, info.max - 1, info.max], dtype)
    values = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.5, ends[rng.integers(4, size=shape)], values)


def _spread_along_k(
    p: GemmProblem, operands: dict[str, Array], around: int, rng: np.random.Generator
) -> None:
    """Scale A by 2^(around + s) and B by 2^(around - s) at each k, for a random s in -30 to 30."""
    s = rng.integers(-30, 31, p.k)
    for name, trans, exponents in (("a", p.trans_a, around + s), ("b", not p.trans_b, around - s)):
        factors = np.exp2(exponents).astype(operands[name].dtype)
        operands[name][...] *= factors[:, None] if trans else factors


def _make_special(p: GemmProblem, operands: dict[str, Array], rng: np.random.Generator) -> None:
    """Put NaN and infinities into a few rows of A and columns of B, and NaN into the extras."""
    for name in p.extras:
        x = operands[name]
        if x.dtype.kind not in "biu" and x.size > 1:
            x[tuple(int(rng.integers(length)) for length in x.shape)] = np.nan
    # Of these the activation of an infinity is the same by every formula.
    infinities = (np.inf, -np.inf) if p.activation in ("none", "relu", "leaky_relu") else ()
    values = (np.nan, *infinities)
    lines = {"a": (p.m, p.trans_a), "b": (p.n, not p.trans_b)}
    for name, (length, trans) in lines.items():
        x = operands[name]
        if x.dtype.kind in "biu" or not p.k or (length < len(values) + 1 and name == "a" and p.n > length):
            continue
        x = np.swapaxes(x, -1, -2) if trans else x
        count = min(len(values), max(1, length // 2))
        start = int(rng.integers(len(values)))
        for at, line in enumerate(rng.permutation(length)[:count]):
            x[..., line, rng.integers(p.k)] = values[(start + at) % len(values)]
