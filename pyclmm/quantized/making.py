"""quantize: weights of a format from an array of numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError, DTypeError, ShapeError, brief
from ..formats import Format, format_of
from ..formats.base import Array
from ..untraced import untraced
from .array import FLOATS, QuantizedArray
from .places import numbers

_ALWAYS_IN_RANGE = 2**-6, 1024  # of the largest number: every format has scales for it
_AT_A_TIME = 1 << 22  # weights, so that what the host holds besides is small


@untraced
def quantize(
    w: ArrayLike,
    group_size: int | None = None,
    bits: int | None = None,
    mode: str = "affine",
    *,
    pad: bool = False,
) -> QuantizedArray:
    """The weights *w*, (N, K) or a stack (groups, N, K), quantised in groups along K.

    Parameters
    ----------
    w
        float32, float64, float16 or bfloat16, all finite.
    group_size, bits
        Of mode "affine": 32, 64 (the default) or 128 weights with one scale and bias; 2, 3, 4 (the
        default), 6 or 8 bits. Each other mode has its own.
    mode
        "affine": scale * q + bias, as MLX's ``quantize``, both of w's dtype (float32 of float64).
        "mxfp4", "mxfp8" and "nvfp4": small floating-point numbers. "q4_0", "q4_1", "q5_0", "q8_0" and
        "mxfp4_gguf": those of GGUF.
    pad
        True: K is filled with zeros to a multiple of the group; x of a product needs that K, too.

    Raises
    ------
    DTypeError (integers), ShapeError (another rank, groups that do not divide K), ArgumentError (a
    mode, bits or group that is not offered, numbers that are not finite, too large or all too small for the
    scales), UnsupportedError (a mode that is only read).
    """
    x = numbers("w", w)
    if x.dtype.name not in FLOATS:
        raise DTypeError(f"w has dtype {x.dtype}; pass {', '.join(FLOATS)}: w.astype(np.float32)")
    if x.ndim not in (2, 3):
        raise ShapeError(
            f"w has shape {x.shape}; pass a matrix, (N, K), or a stack of some, with groups along K"
        )
    form = format_of(mode, bits, group_size, "float32" if x.dtype.name == "float64" else x.dtype.name)
    if not isinstance(pad, bool | np.bool_):
        raise DTypeError(f"pad is {brief(pad)}; pass True or False")
    if pad:
        x = np.pad(x, (*[(0, 0)] * (x.ndim - 1), (0, form.padded(x.shape[-1]) - x.shape[-1])))
    form.quantize(np.zeros((1, form.padded(1)), np.float32))  # no other K helps a mode that is only read
    form.check_depth(k := x.shape[-1])
    data = np.empty((*x.shape[:-1], form.row_nbytes(k)), np.uint8)
    largest = 0.0
    for rows, own in _some(data, x):
        rows[...] = form.quantize(_finite(own))
        of_these = float(abs(own).max())  # of float64 too: in float32 the least are 0
        _check_large(form, rows, k, of_these)
        largest = max(largest, of_these)
    is_small = 0 < largest < _ALWAYS_IN_RANGE[0]  # a matrix of a stack, or some rows, may be smaller still
    if is_small and not any(form.dequantize(rows, k).any() for rows, _ in _some(data, x)):
        raise _beyond(form, largest, "small", "multiply w, and divide the product")
    return QuantizedArray.of_rows(data, form, k)


def _some(data: Array, w: Array) -> Iterator[tuple[Array, Array]]:
    """Rows of *data* and of *w*, matrices or stacks, some of one matrix at a time, as views."""
    step = max(1, _AT_A_TIME // w.shape[-1])
    for rows, own in zip(data, w, strict=True) if w.ndim == 3 else [(data, w)]:
        for start in range(0, len(own), step):
            yield rows[start : start + step], own[start : start + step]


def _finite(x: Array) -> Array:
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(x, np.float32)
    if not np.isfinite(found).all():
        raise ArgumentError(
            "w has numbers that are not finite in float32; no scale fits them: replace them first"
        )
    return found


def _check_large(form: Format, rows: Array, k: int, largest: float) -> None:
    """Raise ArgumentError if *form*, which made *rows* of numbers up to *largest*, has no such scales.

    Those of mxfp4, powers of 2, make 6 of a number below 8.
    """
    if largest > _ALWAYS_IN_RANGE[1]:
        found = form.dequantize(rows, k)
        if not (np.isfinite(found).all() and abs(found).max() >= largest * 0.75):
            raise _beyond(form, largest, "large", "divide w, and multiply the product")


def _beyond(form: Format, largest: float, fault: str, cure: str) -> ArgumentError:
    return ArgumentError(
        f"w has numbers up to {largest:.3g}, too {fault} for the scales of {form.name}; {cure}, or take "
        "float32 w with mode='affine'"
    )
