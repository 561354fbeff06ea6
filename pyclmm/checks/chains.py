"""The bits of a reproducible product, computed by NumPy alone, slowly.

::

    s = 0;  s = fma(a(i, k), b(k, j), s)  for k = 0, 1, 2, ...         in the accumulator's type
    out(i, j) = act(fma(alpha, s + 0, fma(beta, c(i, j), bias)))       rounded to the result's type at the end

Terms that are missing are left out. The products of complex numbers have four FMAs each, in this order:

    re = fma(-a.im, b.im, fma(a.re, b.re, re))
    im = fma(a.im, b.re, fma(a.re, b.im, im))

A real alpha or beta multiplies real and imaginary parts apart. cl/include/types.h and gemm.h say the same to
devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..problem import dtypes
from ..problem.reproducible import check_activation
from .fused import Array, fma

_SLOPE = 0.01  # of leaky_relu


def chain(
    a: Any,
    b: Any,
    c: Any = None,
    /,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    bias: Any = None,
    activation: str | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """What :func:`pyclmm.gemm` gives with ``reproducible=True``, bit for bit but for the payload of NaN.

    It needs no OpenCL. It takes about 20 ns for each multiply-add of float32, and ten times as long for
    float64. Arguments and errors as for gemm, without transposes: pass ``a.T``.
    """
    a, b = np.asarray(a), np.asarray(b)
    computed = dtypes.result_dtype(a.dtype, b.dtype, dtype, None)
    accumulator = dtypes.dtype_of(dtypes.ACCUMULATOR[dtypes.type_name(computed, "the result")])
    check_activation(activation or "none")
    shape = np.matmul(np.empty(a.shape, bool), np.empty(b.shape, bool)).shape
    x, y = (z.astype(accumulator) for z in (np.atleast_2d(a), b if b.ndim > 1 else b[:, None]))
    if alpha == 0:  # a and b are not read
        x, y = x[..., :0], y[..., :0, :]
    sums = x @ y if accumulator.kind == "u" else _sums(x, y)
    with np.errstate(all="ignore"):
        value = _finished(
            sums.reshape(shape), _scalar(alpha, accumulator), _rest(c, beta, bias, accumulator, shape)
        )
        return np.asarray(_activated(value, activation).astype(computed))


def _sums(x: Array, y: Array) -> Array:
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    total = np.zeros((*batch, x.shape[-2], y.shape[-1]), x.dtype)
    columns, rows = np.moveaxis(x, -1, 0).copy(), np.moveaxis(y, -2, 0).copy()
    for column, row in zip(columns, rows, strict=True):
        total = _mac(total, column[..., :, None], row[..., None, :])
    return np.asarray(total + total.dtype.type(0))


def _mac(total: Array, x: Array, y: Array) -> Array:
    """total + x y."""
    if total.dtype.kind == "u":
        return np.asarray(total + x * y)
    if total.dtype.kind != "c":
        return fma(x, y, total)
    return _pair(
        fma(-x.imag, y.imag, fma(x.real, y.real, total.real)),
        fma(x.imag, y.real, fma(x.real, y.imag, total.imag)),
    )


def _pair(real: Array, imag: Array) -> Array:
    together = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    together.real, together.imag = real, imag
    return together


def _scalar(value: complex, accumulator: np.dtype[Any]) -> Array:
    """alpha or beta as the accumulator's type has it. Integers wrap."""
    if accumulator.kind == "u":
        return np.array(int(value.real) % 2 ** (8 * accumulator.itemsize), accumulator)
    return np.array(value, accumulator)


def _rest(
    c: Any, beta: complex, bias: Any, accumulator: np.dtype[Any], shape: tuple[int, ...]
) -> Array | None:
    """beta c + bias, or None if there is neither."""
    shift = None if bias is None else np.broadcast_to(np.asarray(bias).astype(accumulator), shape)
    if c is None or beta == 0:
        return shift
    return _finished(np.asarray(c).astype(accumulator), _scalar(beta, accumulator), shift)


def _finished(value: Array, scale: Array, rest: Array | None) -> Array:
    """scale value + rest."""
    apart = scale.dtype.kind == "c" and scale.imag == 0
    if rest is None:
        if scale.dtype.kind != "c":
            return np.asarray(scale * value)
        real, imag = scale.real * value.real, scale.real * value.imag
        if apart:
            return _pair(real, imag)
        return _pair(fma(-scale.imag, value.imag, real), fma(scale.imag, value.real, imag))
    if apart:
        return _pair(fma(scale.real, value.real, rest.real), fma(scale.real, value.imag, rest.imag))
    return _mac(rest, scale, value)


def _activated(value: Array, activation: str | None) -> Array:
    if activation in (None, "none"):
        return value
    below = value.dtype.type(0) if activation == "relu" else value.dtype.type(_SLOPE) * value
    return np.asarray(np.where(value < 0, below, value))
