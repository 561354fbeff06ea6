"""Parts of quantised weights that others made, as rows of a format: MLX's, and int4 of GPTQ and AWQ."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError, DTypeError, ShapeError, brief, unknown_name
from ..formats import Format, check_whole, format_of
from ..formats.affine import SCALES
from ..formats.base import Array, RowFormat
from ..formats.mx import SmallFloats
from .places import numbers

LAYOUTS = ("mlx", "gptq", "gptq_v2", "awq")
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where number i of eight is in a word
_PER_WORD = 8  # numbers of 4 bits


def joined(
    packed: ArrayLike,
    scales: ArrayLike,
    biases: ArrayLike | None,
    zeros: ArrayLike | None,
    g_idx: ArrayLike | None,
    mode: str,
    bits: int | None,
    group_size: int | None,
    layout: str,
) -> tuple[Format, Array, int]:
    """The format, the rows and K. Arguments and errors as :meth:`QuantizedArray.from_parts`."""
    for name, given in (("mode", mode), ("layout", layout)):
        if not isinstance(given, str):
            raise DTypeError(f"{name} is {brief(given)}; pass a string")
    check_whole(bits=bits, group_size=group_size)
    if layout not in LAYOUTS:
        raise unknown_name("layout", layout, LAYOUTS)
    words, by = numbers("packed", packed), numbers("scales", scales)
    _check("packed", words, np.uint32 if layout == "mlx" else np.int32)
    if layout == "mlx":
        if zeros is not None or g_idx is not None:
            raise ArgumentError("zeros or g_idx is given, but layout 'mlx' has biases; leave it out")
        return _of_mlx(words, by, biases, mode, bits, group_size)
    if mode != "affine" or bits not in (None, 4) or biases is not None:
        raise ArgumentError(
            f"layout {layout!r} is of affine weights of 4 bits with zeros=; leave out mode, bits and biases"
        )
    if zeros is None:
        raise ArgumentError(f"zeros is missing: layout {brief(layout)} has qzeros; pass them")
    points = numbers("zeros", zeros)
    _check("zeros", points, np.int32)
    _check_scales("scales", by, (*SCALES, "float64"))
    form, rows, k = _of_words(words, by, points, layout)
    if group_size not in (None, form.group_size):
        raise ArgumentError(
            f"group_size is {brief(group_size)}, but scales of shape {by.shape} have groups of "
            f"{form.group_size}; leave it out"
        )
    if g_idx is not None and not np.array_equal(numbers("g_idx", g_idx), np.arange(k) // form.group_size):
        raise ArgumentError(
            f"g_idx is not k // {form.group_size}: groups of columns that are not neighbours (desc_act) are "
            "not offered; quantise without it"
        )
    return form, rows, k


def _of_mlx(
    words: Array, by: Array, biases: ArrayLike | None, mode: str, bits: int | None, group_size: int | None
) -> tuple[Format, Array, int]:
    affine = mode == "affine"
    if affine:
        _check_scales("scales", by, tuple(SCALES))
    form = format_of(mode, bits, group_size, by.dtype.name)
    if not isinstance(form, RowFormat):
        raise ArgumentError(
            f"mode {brief(mode)} has its scales in blocks, not as parts; read a file with pyclmm.from_gguf"
        )
    if affine == (biases is None):
        what = "missing; pass those" if affine else "given; leave it out: it is not"
        raise ArgumentError(f"biases is {what} of mode {brief(mode)}")
    k = words.shape[1] * 32 // form.bits
    if k != form.padded(k):
        raise ShapeError(
            f"packed has shape {words.shape}, which is K = {k} of {form.bits} bits; with {form.name} K is a "
            f"multiple of {form.padded(1)}: pass the bits and the group_size that it was made with"
        )
    given = {"scales": by} if biases is None else {"scales": by, "biases": numbers("biases", biases)}
    for name, x in given.items():
        _check_scales(name, x, (by.dtype.name if affine else "uint8",))
        if x.shape != (len(words), k // form.group_size):
            raise ShapeError(
                f"{name} has shape {x.shape}; for packed of shape {words.shape}, {form.bits} bits and groups "
                f"of {form.group_size} pass {(len(words), k // form.group_size)}"
            )
    rows = np.zeros((len(words), form.row_nbytes(k)), np.uint8)
    for held, x in zip(form.parts(rows, k), (words, *given.values()), strict=False):
        held[...] = np.ascontiguousarray(x).view(np.uint8)
    if isinstance(form, SmallFloats) and not np.isfinite(form.widened(by)).all():
        raise ArgumentError("scales has bytes that stand for NaN; the weights would be NaN: mend them first")
    return form, rows, k


def _of_words(words: Array, by: Array, points: Array, layout: str) -> tuple[Format, Array, int]:
    """Those of GPTQ, packed along K, or of AWQ, packed along N: value = scale (q - zero)."""
    awq = layout == "awq"
    codes = _unpacked(words, _AWQ_ORDER).T if awq else _unpacked(words.T, range(_PER_WORD))
    n, k = codes.shape
    zero = _unpacked(points, _AWQ_ORDER if awq else range(_PER_WORD)).T.astype(np.float32)
    groups = by.shape[0] if by.ndim == 2 else 0
    if by.shape != (groups, n) or zero.shape != (n, groups) or not groups or k % groups:
        raise ShapeError(
            f"scales has shape {by.shape} and zeros {points.shape}; for weights of N = {n}, K = {k} pass "
            f"(K / group, {n}) and (K / group, {n // _PER_WORD})"
        )
    if layout == "gptq":
        zero += 1
    scale = by.T.astype(np.float32)
    with np.errstate(over="ignore"):
        bias = -scale * zero
    _check_finite("scales times zeros", bias)
    form = format_of("affine", 4, k // groups, "float32")
    return form, form.joined(codes, scale, bias), k  # type: ignore[attr-defined]


def _unpacked(words: Array, order: Any) -> Array:
    """The numbers of 4 bits in 32-bit words, along the last axis: number i is at place order[i]."""
    shifts = np.array([4 * place for place in order], np.uint32)
    found = (np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts) & np.uint32(15)
    return found.astype(np.uint8).reshape(*words.shape[:-1], _PER_WORD * words.shape[-1])


def _check(name: str, x: Array, dtype: Any) -> None:
    if x.ndim != 2:
        raise ShapeError(f"{name} has shape {x.shape}; pass 2 axes")
    if x.dtype.kind not in "iu" or x.dtype.itemsize != np.dtype(dtype).itemsize:
        raise DTypeError(
            f"{name} has dtype {x.dtype}; pass {np.dtype(dtype).name}, 32 bits of packed weights each"
        )


def _check_scales(name: str, x: Array, dtypes: tuple[str, ...]) -> None:
    if x.dtype.name not in dtypes:
        raise DTypeError(f"{name} has dtype {x.dtype}; pass {' or '.join(dtypes)}")
    with np.errstate(over="ignore"):
        _check_finite(name, x.astype(np.float32))


def _check_finite(name: str, x: Array) -> None:
    if not np.isfinite(x).all():
        raise ArgumentError(
            f"{name} has numbers that are not finite in float32; the weights would be NaN: mend them first"
        )
