"""Formats of quantised weights: how N x K weights lie in N rows of bytes, and what these stand for. NumPy.

A format of GGUF is a record in gguf_blocks.py and a header in cl/formats/ of its name.

Others import: affine, base, fragments, mx, and what is in ``__all__``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, UnsupportedError, brief, unknown_name
from . import affine, fragments, mx
from .base import RUN, Array, Format
from .gguf_blocks import OF_GGUF, BlockFormat

__all__ = [
    "FORMATS", "FORMAT_NAMES", "OF_GGUF", "ORDERS", "RUN", "BlockFormat", "Format", "as_affine",
    "check_whole", "format_named", "format_of", "in_rows", "ordered",
]  # fmt: skip

FORMATS: tuple[Format, ...] = (*affine.FORMATS, *mx.FORMATS, *OF_GGUF)
_BY_NAME = {form.name: form for form in (*FORMATS, *fragments.FRAGMENTS)}
FORMAT_NAMES = tuple(_BY_NAME)
ORDERS = ("rows", "fragments")  # in which weights may lie


def format_named(name: str) -> Format:
    """The format called *name*. Raises ArgumentError with the nearest names if there is none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise unknown_name("format", name, FORMAT_NAMES) from None


def in_rows(form: Format) -> Format:
    """The format of the same weights, one behind the other."""
    return _BY_NAME[form.name.removesuffix("_fragments")]


def ordered(form: Format, rows: Array, k: int, order: str) -> tuple[Format, Array]:
    """*rows* of *k* weights of *form* in *order*, and their format. Raises ArgumentError for an order that is
    not known, UnsupportedError for weights that have no other.
    """
    if not (isinstance(order, str) and order in ORDERS):
        raise unknown_name("order", order, ORDERS)
    if order == form.order:
        return form, rows
    if isinstance(form, fragments.Fragments):
        return in_rows(form), form.reordered(rows, k, back=True)
    other = _BY_NAME.get(f"{form.name}_fragments")
    if not isinstance(other, fragments.Fragments):
        raise UnsupportedError(
            f"{form.name} cannot lie in the order of fragments, as affine weights of 4 and 8 bits can: leave "
            "order out, or take q.as_affine() of weights from GGUF"
        )
    if k % other.block:
        raise UnsupportedError(
            f"K is {k}; weights lie in the order of fragments where it is a multiple of {other.block}: leave "
            "order out"
        )
    return other, other.reordered(rows, k)


def as_affine(form: Format, rows: Array, k: int) -> tuple[Format, Array]:
    """*rows* of *k* weights of *form* as affine ones of the same values, of 4 or 8 bits, and their format:
    with float16 scales where these hold them. Raises UnsupportedError for weights of other kinds.
    """
    if form.mode == "affine":
        return form, rows
    if not (isinstance(form, BlockFormat) and form.is_affine):
        takes = ", ".join(one.name for one in OF_GGUF if one.is_affine)
        raise UnsupportedError(f"{form.name} weights are no affine ones; those of {takes} can be")
    codes, *parts = form.as_affine(rows, k)
    if not all(np.isfinite(x).all() for x in parts):
        raise UnsupportedError(f"{form.name} weights with a scale that is not finite are no affine ones")
    with np.errstate(over="ignore"):
        exact = all(np.array_equal(x.astype(np.float16).astype(np.float32), x) for x in parts)
    dtype = "float16" if exact else "float32"
    found = _BY_NAME[f"affine{4 if form.bits == 4 else 8}_g{form.group_size}_{dtype}"]
    assert isinstance(found, affine.Affine)
    return found, found.joined(codes, *(affine.narrowed(x, dtype) for x in parts))


def check_whole(**numbers: Any) -> None:
    """Raise DTypeError, by name, unless each of *numbers* is an integer or None."""
    for name, value in numbers.items():
        if not (value is None or isinstance(value, int | np.integer)):
            raise DTypeError(f"{name} is {brief(value)}; pass an int")


def format_of(mode: str, bits: int | None, group_size: int | None, dtype: str) -> Format:
    """The format of *mode*; *dtype*: of affine scales. Raises ArgumentError, DTypeError for no integers."""
    check_whole(bits=bits, group_size=group_size)
    modes = tuple(dict.fromkeys(form.mode for form in FORMATS))
    if not (isinstance(mode, str) and mode in modes):
        raise unknown_name("mode", mode, modes)
    if mode == "affine":
        bits, group_size = 4 if bits is None else bits, 64 if group_size is None else group_size
        for name, value, offered in (("bits", bits, affine.BITS), ("group_size", group_size, affine.GROUPS)):
            if value not in offered:
                raise ArgumentError(
                    f"{name} is {brief(value)}; affine weights have {', '.join(map(str, offered))}"
                )
        return format_named(f"affine{bits}_g{group_size}_{dtype}")
    form = format_named(mode)
    for name, asked in (("bits", bits), ("group_size", group_size)):
        if asked not in (None, getattr(form, name)):
            own = getattr(form, name)
            raise ArgumentError(f"{name} is {brief(asked)}, but {mode} has {own}; leave it out")
    return form
