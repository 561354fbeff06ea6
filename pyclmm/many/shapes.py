"""Lists of shapes: arrays that nobody reads, to plan for."""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import ArgumentError, DTypeError, ShapeError, brief, in_short
from ..problem.dtypes import named_dtype, type_name
from .apart import Lists
from .lists import naming


def unwritten(shapes: Lists, dtype: DTypeLike) -> Lists:
    """C-contiguous arrays of these *shapes* whose elements nobody has written. All but outs share memory.

    Raises DTypeError and ShapeError, naming the pair, and MemoryError.
    """
    its_type: Any = named_dtype(dtype)
    type_name(its_type, "dtype")
    found: list[tuple[int, ...] | None] = []
    for at, shape in enumerate(shapes.arrays):
        name, pair = shapes.names[at // shapes.length], at % shapes.length
        with naming(pair):
            is_none = shape is None and name not in ("a", "b")
            found.append(None if is_none else _checked(name, shape, its_type))
    largest = max((math.prod(sizes) for sizes in found if sizes is not None), default=0)
    memory, first_out = np.empty(largest, its_type), shapes.number("out")
    made: list[Any] = []
    for at, sizes in enumerate(found):
        # Without elements NumPy gives an array other strides if its memory is given.
        its = None if sizes is None or 0 in sizes or at >= first_out else memory
        made.append(None if sizes is None else np.ndarray(sizes, its_type, its))
    return Lists(shapes.names, tuple(made))


def refuse_shapes(pairs: Any) -> None:
    """Raises ArgumentError for pairs of tuples of whole numbers: shapes without a dtype, which would be
    multiplied as vectors.
    """
    for number, pair in enumerate(pairs if isinstance(pairs, list | tuple) else ()):
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_shape, pair)):
            raise ArgumentError(
                f"pairs[{number}] is {brief(pair)}: with shapes pass dtype= too; to multiply these numbers "
                "pass arrays"
            )


def _is_shape(x: Any) -> bool:
    return isinstance(x, tuple) and x != () and all(isinstance(size, int | np.integer) for size in x)


def _checked(name: str, shape: Any, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """*shape* as plain numbers. Raises DTypeError for what is no shape, ShapeError for one of no array."""
    if not isinstance(shape, tuple | list):
        raise DTypeError(
            f"{name} is a {type(shape).__name__}; with dtype= pass its shape, such as (3, 4), or leave dtype "
            "out and pass arrays"
        )
    try:
        sizes = tuple(map(index, shape))
    except TypeError:
        raise DTypeError(f"{name} has shape {brief(shape)}; pass whole numbers") from None
    if any(size < 0 for size in sizes):
        raise ShapeError(f"{name} has shape {brief(sizes)}; pass lengths of at least 0")
    try:
        np.broadcast_to(np.empty((), dtype), sizes)
    except ValueError as error:  # too many axes, or bytes
        why = f"NumPy has no array of it: {in_short(error)}"
        raise ShapeError(f"{name} has shape {brief(sizes)}; {why}; pass shapes of arrays") from None
    return sizes
