"""The keywords `axes` and `axis` of a NumPy ufunc: where the core axes of a, b and the result lie."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError


def core_axes(ndims: Mapping[str, int], axes: Any, axis: Any) -> dict[str, tuple[int, ...]]:
    """The core axes of "a", "b" and "out", by which names *ndims* has the number of dimensions of each array.

    numpy.matmul itself checks them, on empty arrays with so many dimensions. Raises DTypeError and ShapeError
    with its words where it raises TypeError, and ValueError or OverflowError.
    """
    given = {name: value for name, value in (("axes", axes), ("axis", axis)) if value is not None}
    empty = {name: np.empty((0,) * ndim) for name, ndim in ndims.items()}
    try:
        np.matmul(empty["a"], empty["b"], out=empty.get("out"), **given)
    except (TypeError, ValueError, OverflowError) as error:
        kind = DTypeError if isinstance(error, TypeError) else ShapeError
        passed = " and ".join(f"{name} is {value!r}" for name, value in given.items())
        raise kind(
            f"{passed}: {error}; pass axes=, a list of the core axes of a, b and the result, such as "
            "[(-2, -1), (-2, -1), (-2, -1)] for stacks of matrices"
        ) from error
    items = [item if isinstance(item, tuple) else (item,) for item in axes]
    return dict(zip(("a", "b", "out"), items, strict=True))


def last(ndim: int, core: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes, for a transposition, that puts those of *core* last."""
    ends = [operator.index(axis) % ndim for axis in core]
    return (*(axis for axis in range(ndim) if axis not in ends), *ends)


def back(ndim: int, core: tuple[int, ...]) -> tuple[int, ...]:
    """The order that undoes :func:`last`."""
    order = last(ndim, core)
    return tuple(order.index(axis) for axis in range(ndim))
