"""Small lists of products, and small ragged products: made of a stack, whose products they cut to sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..problem.dtypes import dtype_of
from ..problem.gemm import GemmProblem, ListedProduct, Ragged

Array = np.ndarray[Any, np.dtype[Any]]

_ALPHAS, _BETAS = (1, -2, 3), (2, 1, -1)
_UNIT = 16  # a length that is a multiple of this is cut to a shorter one: programs may depend on it


class PartOfList(NamedTuple):
    """One product: where its result is in the array of all, its problem, and views of its operands."""

    where: tuple[Any, ...]
    problem: GemmProblem
    views: dict[str, Array]
    alpha: complex
    beta: complex


def in_short(problem: GemmProblem) -> GemmProblem:
    """*problem* with only those products of a list on which its programs depend: by the least and largest
    lengths, and by what divides all of them."""
    if not problem.products:
        return problem
    kept: list[ListedProduct] = []
    seen: tuple[Any, ...] = ()
    for one in problem.products:
        sizes = [*kept, one]
        known = tuple((min(x), max(x), math.gcd(*x)) for x in list(zip(*sizes, strict=True))[:3])
        if known != seen:
            kept, seen = [*kept, one._replace(alpha=1, beta=0)], known
    return replace(problem, products=tuple(kept))


def stack_of(problem: GemmProblem) -> GemmProblem:
    """The stack that a small list was made of, or the product whose B or result ragged groups have."""
    places: tuple[tuple[int, ...], ...]
    if problem.products:
        first, second = problem.products[0], problem.products[min(1, len(problem.products) - 1)]
        places = tuple((getattr(second, name) - getattr(first, name),) for name in ("a", "b", "c", "out"))
        return replace(problem, products=(), batch_shape=(len(problem.products),), batch_strides=places)
    return replace(problem, ragged=None)


def listed(wanted: GemmProblem, stack: GemmProblem) -> GemmProblem:
    """*stack* as a list, or as ragged products, as *wanted* is one. Lengths get shorter from one to the next;
    the last of several products has K 0."""
    plain = replace(stack, batch_shape=(), batch_strides=((),) * 4)
    if wanted.ragged is not None:
        (apart,) = stack.batch_strides.b if wanted.ragged.axis == "m" else stack.batch_strides.out
        if stack.b_format:  # of which groups, unlike a stack, have their own, with a gap between them
            apart = (stack.n + 1) * stack.ldb
        ragged = replace(wanted.ragged, groups=stack.batch, stride=apart)
        along_a, along_b = ragged.begins_along(plain.trans_a, plain.trans_b)
        a_align = dtype_of(plain.a_type).itemsize if along_a else plain.a_align
        b_align = dtype_of(plain.b_type).itemsize if along_b else plain.b_align
        return replace(plain, ragged=ragged, a_align=a_align, b_align=b_align)
    a, b, c, out = (steps[0] for steps in stack.batch_strides)
    products = []
    for z in range(stack.batch):
        m, n, k = (_cut(length, z) for length in (stack.m, stack.n, stack.k))
        products.append(
            ListedProduct(
                m, n, k if z < 2 or z < stack.batch - 1 else 0,
                z * a, z * b, z * out, stack.lda, stack.ldb, stack.ldo, z * c, *stack.c_strides, 0,
                stack.bias_stride, _ALPHAS[z % 3], _BETAS[z % 3] if stack.has_c else 0,
            )
        )  # fmt: skip
    return replace(plain, products=tuple(products))


def _cut(length: int, z: int) -> int:
    step = _UNIT if length % _UNIT == 0 else 1
    return max(min(length, step), length - z * step)


def group_sizes(problem: GemmProblem, ragged: Ragged, rng: np.random.Generator) -> Array:
    """Sizes of groups, some of them 0, that leave a few rows to none."""
    length = problem.m if ragged.axis == "m" else problem.k
    ends = np.sort(rng.integers(0, length + 1, ragged.groups))
    if ragged.groups > 2:
        ends[1] = ends[0]
    return np.diff(ends, prepend=0).astype(ragged.size_type)


def parts(problem: GemmProblem, views: dict[str, Array]) -> Iterator[PartOfList]:
    """The products of a small list, or of ragged ones, on *views* of whole operands by name."""
    plain = replace(stack_of(problem), batch_shape=(), batch_strides=((),) * 4)
    if problem.ragged is not None:
        yield from _groups(problem, problem.ragged, plain, views)
        return
    for z, one in enumerate(problem.products):
        own = {name: _corner(problem, name, x, z, one) for name, x in views.items()}
        small = replace(plain, m=one.m, n=one.n, k=one.k)
        yield PartOfList((z, slice(one.m), slice(one.n)), small, own, one.alpha, one.beta)


def _corner(problem: GemmProblem, name: str, x: Array, z: int, one: ListedProduct) -> Array:
    """The part of operand *name* that product *one*, number *z*, has."""
    m, n, k = slice(one.m), slice(one.n), slice(one.k)
    if name == "bias":
        return x[n if problem.bias == "row" else m]
    corners = {"a": (k, m) if problem.trans_a else (m, k), "b": (n, k) if problem.trans_b else (k, n)}
    return x[(z, *corners.get(name, (m, n)))]


def _groups(
    problem: GemmProblem, ragged: Ragged, plain: GemmProblem, views: dict[str, Array]
) -> Iterator[PartOfList]:
    ends = np.cumsum(views["group_sizes"])
    for g, (end, size) in enumerate(zip(ends, views["group_sizes"], strict=True)):
        rows, a, b = slice(end - size, end), views["a"], views["b"]
        if ragged.axis == "m":
            own = {"a": a[:, rows] if problem.trans_a else a[rows], "b": b[g]}
            yield PartOfList((rows,), replace(plain, m=int(size)), own, 1, 0)
        else:
            own = {
                "a": a[rows] if problem.trans_a else a[:, rows],
                "b": b[:, rows] if problem.trans_b else b[rows],
            }
            yield PartOfList((g,), replace(plain, k=int(size)), own, 1, 0)
    if ragged.axis == "m":  # rows of no group: their sums have no terms
        rest, a, b = slice(int(ends[-1]), None), views["a"], views["b"][0]
        own = {
            "a": a[:0, rest] if problem.trans_a else a[rest, :0],
            "b": b[:, :0] if problem.trans_b else b[:0],
        }
        yield PartOfList((rest,), replace(plain, m=problem.m - rest.start, k=0), own, 1, 0)


def poison(problem: GemmProblem, views: dict[str, Array]) -> None:
    """Make what no product of a list may read change a result that reads it."""
    if not problem.products:
        return
    for name in ("a", "b"):
        x = views[name]
        kept = np.zeros(x.shape, bool)
        for z, one in enumerate(problem.products):
            _corner(problem, name, kept, z, one)[...] = True
        x[~kept] = 99 if x.dtype.kind in "biu" else np.nan
