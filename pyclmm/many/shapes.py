"""Lists of shapes: arrays without memory, to plan for."""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import DTypeError, ShapeError, in_short
from ..problem.dtypes import named_dtype, type_name
from ..problem.gemm import MAX_ALIGN, dense
from .apart import Lists, at_address
from .lists import naming

_MOST = 2**62  # bytes of all arrays, each at an address of its own


def without_memory(shapes: Lists, dtype: DTypeLike) -> Lists:
    """C-contiguous arrays of these *shapes*, one behind the other at addresses that nobody reads.

    Raises DTypeError and ShapeError, naming the pair.
    """
    its_type: Any = named_dtype(dtype)
    type_name(its_type, "each array")
    made, address = list[Any](), MAX_ALIGN
    for at, shape in enumerate(shapes.arrays):
        name, pair = shapes.names[at // shapes.length], at % shapes.length
        if shape is None and name not in ("a", "b"):
            made.append(None)
            continue
        with naming(pair):
            made.append(_array_of(name, shape, its_type, address))
        nbytes = made[-1].nbytes
        address += nbytes + -nbytes % MAX_ALIGN
    return Lists(shapes.names, tuple(made))


def _array_of(name: str, shape: Any, dtype: np.dtype[Any], address: int) -> Any:
    """One of them, at that *address*."""
    if not isinstance(shape, tuple | list):
        raise DTypeError(
            f"{name} is a {type(shape).__name__}; with dtype= pass its shape, such as (3, 4), or leave dtype "
            "out and pass arrays"
        )
    try:
        sizes = tuple(map(index, shape))
    except TypeError:
        raise DTypeError(f"{name} has shape {shape}; pass whole numbers") from None
    if any(size < 0 for size in sizes):
        raise ShapeError(f"{name} has shape {sizes}; pass lengths of at least 0")
    try:
        if address + math.prod(sizes) * dtype.itemsize > _MOST:
            raise ValueError("the arrays of the list have more bytes than there are addresses")
        if 0 in sizes:
            return np.empty(sizes, dtype)  # the strides of such an array are NumPy's own
        return at_address(address, dense(sizes, dtype)).view(dtype)
    except ValueError as error:  # NumPy's, for too many axes
        raise ShapeError(f"{name} has shape {sizes}: {in_short(error)}; pass a smaller one") from None
