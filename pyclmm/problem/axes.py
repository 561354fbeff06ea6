"""The keywords `axes` and `axis` of NumPy's ufuncs: where the core axes of operands and result lie."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, AxisError, DTypeError, ShapeError, amount, brief, in_short


def core_axes(ndims: Mapping[str, int], axes: Any) -> dict[str, tuple[int, ...]]:
    """The core axes of "a", "b" and "out", by which names *ndims* has the number of dimensions of each array.

    numpy.matmul itself checks them, on empty arrays with so many dimensions. Raises with its words DTypeError
    where it raises TypeError, AxisError where it does, ShapeError for ValueError and OverflowError.
    """
    empty = {name: np.empty((0,) * ndim) for name, ndim in ndims.items()}
    try:
        np.matmul(empty["a"], empty["b"], out=empty.get("out"), axes=axes)
    except (TypeError, ValueError, OverflowError) as error:
        is_axis = isinstance(error, np.exceptions.AxisError)
        kind = DTypeError if isinstance(error, TypeError) else AxisError if is_axis else ShapeError
        raise kind(
            f"axes is {brief(axes)}: {in_short(error)}; pass a list of the core axes of a, b and the result, "
            "such as [(-2, -1), (-2, -1), (-2, -1)] for stacks of matrices"
        ) from error
    items = [item if isinstance(item, tuple) else (item,) for item in axes]
    return dict(zip(("a", "b", "out"), items, strict=True))


def vector_axes(
    cores: tuple[int, int, int], ndims: tuple[int, int], axes: Any, axis: Any, keepdims: bool = False
) -> list[tuple[int, ...]]:
    """The core axes of x1, x2 and the result of numpy.vecdot, matvec or vecmat, counted from the first axis.

    *cores* says how many each has, and *keepdims* that the result keeps one more, of length 1. NumPy has
    matvec and vecmat since 2.2 only, so it cannot be asked here.
    """
    for name, ndim, count in zip(("x1", "x2"), ndims, cores, strict=False):
        if ndim < count:
            raise ShapeError(
                f"{name} has {amount(ndim, 'axes')} and does not have enough dimensions; pass {count} or more"
            )
    kept = (*cores[:2], cores[2] + keepdims)
    if axis is not None:
        if axes is not None:
            raise DTypeError("cannot specify both 'axis' and 'axes'; pass one")
        if cores != (1, 1, 0):
            raise DTypeError(f"axis is {brief(axis)}, but a matrix has two core axes; pass axes=")
        axes = [axis, axis, *([axis] if keepdims else [])]
    if axes is None:
        axes = [tuple(range(-count, 0)) for count in kept]
    if not isinstance(axes, list):
        raise DTypeError(f"axes is {brief(axes)}; pass a list with the core axes of x1, x2 and the result")
    if len(axes) == 2 and not cores[2]:
        axes = [*axes, tuple(range(-kept[2], 0))]
    if len(axes) != 3:
        raise ShapeError(
            f"axes has {amount(len(axes), 'entries')}; pass one each for x1, x2 and the result, which may be "
            "left out if it has no core axis"
        )
    rest = max(ndim - count for ndim, count in zip(ndims, cores, strict=False))
    return [
        _core(name, item, count, ndim)
        for name, item, count, ndim in zip(
            ("x1", "x2", "the result"), axes, kept, (*ndims, rest + kept[2]), strict=True
        )
    ]


def _core(name: str, item: Any, count: int, ndim: int) -> tuple[int, ...]:
    """*item* of ``axes``: *count* different axes of an array with *ndim*, counted from the first."""
    given = item if isinstance(item, tuple) else (item,)
    found = counted(name, given, ndim)
    if len(found) != count:
        which = f"{brief(item)} of {name}"
        raise AxisError(f"axes: {which}, which has {amount(count, 'core axes')}; pass a tuple of as many")
    return found


def integer(x: Any) -> int:
    """*x* as a number of Python's. Raises TypeError for what is none, and for True, as NumPy does."""
    if isinstance(x, bool):
        raise TypeError("'bool' object is not an integer")
    return operator.index(x)


def counted(name: str, axes: Sequence[Any], ndim: int) -> tuple[int, ...]:
    """Different *axes* of the array *name*, which has *ndim*, counted from the first. Raises DTypeError for
    what is no integer, AxisError for an axis that is not there, else ArgumentError.
    """
    try:
        found = tuple(map(integer, axes))
    except TypeError as error:
        raise DTypeError(
            f"axes: {brief(axes)} of {name}: {in_short(error)}; pass an integer or a tuple of them"
        ) from error
    if any(not -ndim <= axis < ndim for axis in found):
        raise AxisError(f"axes: {brief(axes)} is out of bounds for {name}, which has {amount(ndim, 'axes')}")
    found = tuple(axis % ndim for axis in found)
    if len(set(found)) != len(found):
        raise ArgumentError(f"axes: {brief(axes)} of {name} has an axis twice; pass each once")
    return found


def summed_axes(ndims: Mapping[str, int], axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes that numpy.tensordot sums over, of two arrays that have *ndims* by name: pairs, in order.

    *axes*: a number, of the first's last and the second's first ones, or two lists. Raises as
    :func:`counted`, and ShapeError for lists of different lengths.
    """
    (first, ndim), (second, _) = ndims.items()
    given: Sequence[Any]
    if np.iterable(axes):
        given = [each if np.iterable(each) else [each] for each in axes]
        if len(given) != 2:
            raise ArgumentError(
                f"axes is {brief(axes)}; pass a number of axes, or two lists: axes of {first} and of {second}"
            )
    else:
        try:
            count = operator.index(axes)
        except TypeError as error:
            raise DTypeError(f"axes is {brief(axes)}; pass an integer, or two lists of integers") from error
        if count > ndim:
            raise AxisError(
                f"axes is {brief(count)}; pass 0 to {ndim}, as {first} has {amount(ndim, 'axes')}"
            )
        given = range(ndim - count, ndim), range(count)  # none if it is negative, as in NumPy
    left, right = (counted(name, list(its), n) for (name, n), its in zip(ndims.items(), given, strict=True))
    if len(left) != len(right):
        raise ShapeError(
            f"axes: {len(left)} of {first} and {len(right)} of {second}: a shape-mismatch for sum; pass as "
            "many of each"
        )
    return left, right


def last(ndim: int, core: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes, for a transposition, that puts those of *core* last."""
    ends = [operator.index(axis) % ndim for axis in core]
    return (*(axis for axis in range(ndim) if axis not in ends), *ends)


def back(ndim: int, core: tuple[int, ...]) -> tuple[int, ...]:
    """The order that undoes :func:`last`."""
    order = last(ndim, core)
    return tuple(order.index(axis) for axis in range(ndim))
