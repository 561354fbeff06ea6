"""The reference: products in NumPy's widest arithmetic, and the error that a result may have.

:func:`pyclmm.reference.chain` gives the bits of a reproducible product.

The bound is Netlib's test ratio for level-3 BLAS (dblat3) of each element:
``|got - ref| / (u * (|alpha| |A| |B| + |beta| |C|))``. It must be at most 16, or K + 2 if that is more.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..problem.dtypes import ELEMENTS, check_cast, type_name
from ..problem.meaning import numbers_of
from .fma_reference import chain

__all__ = [
    "NETLIB_RATIO", "activate", "chain", "error_ratio", "int8_groups", "limit", "magnitude", "matmul",
    "rounding", "unit_roundoff",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]

NETLIB_RATIO = 16.0


def _wide(x: Array) -> Array:
    """*x* in a type of negligible rounding: longdouble for float64, else float64; integers unchanged."""
    if x.dtype.kind in "biu":
        return x
    double = x.dtype in (np.dtype(np.float64), np.dtype(np.complex128))
    if x.dtype.kind == "c":
        return x.astype(np.clongdouble if double else np.complex128)
    return x.astype(np.longdouble if double else np.float64)


def matmul(a: Any, b: Any) -> Array:
    """``a @ b`` by NumPy: in float64, in longdouble for float64 operands, integers in their own type."""
    a, b = numbers_of("a", a), numbers_of("b", b)
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        return np.asarray(np.matmul(a, b))
    # NaN and infinity are valid data. Whether NumPy warns of them depends on the processor.
    with np.errstate(invalid="ignore"):
        return np.asarray(np.matmul(_wide(a), _wide(b)))


def magnitude(a: Any, b: Any) -> Array:
    """``|a| @ |b|`` in float64 or longdouble: the scale of rounding errors."""
    a, b = numbers_of("a", a), numbers_of("b", b)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.matmul(abs(_wide(a)), abs(_wide(b))))


def int8_groups(a: Any, weights: Any) -> Array:
    """*a* as ``quantize_a="int8"`` multiplies it by *weights*, a :class:`pyclmm.QuantizedArray`, in float64.

    The numbers of a in each group of the weights, along the last axis, are rounded to multiples of their
    largest absolute value / 127, to the nearest in float32. Groups without a number of 2^-120 or more are 0;
    those with a NaN or an infinity are NaN. Raises ShapeError if the groups do not divide the axis, and
    DTypeError.
    """
    size = getattr(weights, "group_size", None)
    if size is None:
        raise DTypeError(f"weights is a {type(weights).__name__}; pass a QuantizedArray")
    a = numbers_of("a", a)
    check_cast(a.dtype, np.dtype(np.float32), "a", "same_kind")
    if a.ndim == 0 or a.shape[-1] % size:
        raise ShapeError(
            f"a has shape {a.shape}; pass (..., K), whose K is that of weights in groups of {size}"
        )
    groups = np.ascontiguousarray(a).astype(np.float32).reshape(*a.shape[:-1], a.shape[-1] // size, size)
    most = abs(groups).max(-1, keepdims=True, initial=0)
    counts = (most >= 2.0**-120) & (most < np.inf)
    with np.errstate(all="ignore"):
        whole = np.rint(groups * np.where(counts, np.float32(127) / most, np.float32(0)))
        scale = np.where(counts, most * np.float32(1 / 127), np.where(most < np.inf, 0, np.nan))
        return np.asarray((whole.astype(np.float64) * scale).reshape(a.shape))


def unit_roundoff(dtype: Any) -> float:
    """u: half the distance from 1 to the next number of *dtype*."""
    dtype = np.dtype(dtype)
    known = ELEMENTS.get(dtype.name)
    if known is None:  # longdouble
        return float(np.finfo(dtype).eps) / 2
    return 2.0**-known.significand if known.significand else 0.0


def rounding(values: Any, dtype: Any) -> Array:
    """The largest error of rounding each of *values* to *dtype*: u times it, or half the least subnormal."""
    least = 2.0 ** (ELEMENTS[type_name(np.dtype(dtype), "dtype")].exponents[0] - 1)
    return np.asarray(np.maximum(unit_roundoff(dtype) * abs(numbers_of("values", values)), least))


def limit(k: int) -> float:
    """The largest :func:`error_ratio` allowed for a sum of *k* products."""
    return max(NETLIB_RATIO, float(k + 2))


def activate(x: Any, activation: int) -> Array:
    """Apply an activation, given by its index in ``ACTIVATIONS``, to each element of *x*."""
    x = numbers_of("x", x)
    formulas: tuple[Any, ...] = (
        lambda: x,
        lambda: np.where(x < 0, 0, x),
        lambda: np.where(x < 0, 0.01 * x, x),
        lambda: x * 0.5 * (1 + _erf(x * np.sqrt(0.5))),
        lambda: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        lambda: 1 / (1 + np.exp(-x)),
        lambda: np.tanh(x),
        lambda: x / (1 + np.exp(-x)),
    )
    with np.errstate(over="ignore"):
        return np.asarray(formulas[activation]())


def _erf(x: Array) -> Array:
    """The error function, which NumPy does not have."""
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def error_ratio(got: Any, a: Any, b: Any, *, result: Any = None, operands: float = 0.0) -> float:
    """The largest test ratio of the elements of *got*; that of a correct product is at most :func:`limit`.

    *result* is the exact result if that is not ``a @ b``. *operands* is the relative error allowed for each
    product of two elements because they were rounded first (precision="medium"). Sums are in float32 or
    wider, so a narrower result may also have its own rounding error. The ratio is infinite if the shape is
    wrong, or if a NaN or an infinity is missing or not expected. For integers it is 0 or infinite.
    """
    got = numbers_of("got", got)
    reference = matmul(a, b) if result is None else numbers_of("result", result)
    if got.shape != reference.shape:
        return float("inf")
    if got.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, reference.astype(got.dtype)) else float("inf")
    wide = _wide(got)
    finite = np.isfinite(reference)
    if not np.array_equal(wide[~finite], reference[~finite], equal_nan=True):
        return float("inf")
    u_sum = min(unit_roundoff(got.dtype), unit_roundoff(np.float32))
    own = rounding(reference, got.dtype) if unit_roundoff(got.dtype) > u_sum else 0.0
    scale = magnitude(a, b) + np.finfo(np.float64).tiny
    with np.errstate(invalid="ignore", over="ignore"):
        excess = np.maximum(abs(wide - reference) - own - operands * scale, 0)
        ratio = np.where(finite, excess / (u_sum * scale), 0)
    worst = float(np.max(ratio, initial=0.0))
    return float("inf") if np.isnan(worst) else worst  # NaN in place of a number
