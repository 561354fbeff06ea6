"""The bits of a reproducible product, computed by NumPy alone, slowly.

::

    s = 0;  s = fma(a(i, k), b(k, j), s)  for k = 0, 1, 2, ...         in the accumulator's type
    out(i, j) = act(fma(alpha, s + 0, fma(beta, c(i, j), bias)))       rounded to the result's type at the end

Terms that are missing are left out. The products of complex numbers have four FMAs each, in this order:

    re = fma(-a.im, b.im, fma(a.re, b.re, re))
    im = fma(a.im, b.re, fma(a.re, b.im, im))

A real alpha or beta multiplies real and imaginary parts apart. cl/include/types.h and gemm.h say the same to
devices.

An FMA is ``x * y + z`` with one rounding, to nearest even. NumPy has none, and Python has one from
3.13 on, for single numbers. This one is exact on any host whose float64 additions and multiplications are
IEEE's:

float32  A product has at most 48 bits, so float64 holds it. The sum with z is rounded to odd in float64 and
         then to float32, which is as good as one rounding (Boldo and Melquiond, "Emulation of FMA and
         Correctly Rounded Sums", 2008).
float64  The same paper's algorithm, on operands scaled so that nothing overflows or gets subnormal. Results
         that are subnormal themselves are rounded once more from the unrounded sum, to whole units.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike

from ..errors import ArgumentError
from ..problem import dtypes
from ..problem.canonical import Epilogue, checked_gemm
from ..problem.gemm import dense
from ..problem.meaning import numbers_of

Array = np.ndarray[Any, np.dtype[Any]]

_SLOPE = 0.01  # of leaky_relu
_SPLITTER = 2.0**27 + 1  # Dekker's: cuts 53 bits into 26 and 27
_FAR = 200  # powers of two: beyond 2 * 53 bits, the lesser of two terms is only a direction of rounding
_UNIT = -1074  # exponent of the least float64; subnormal numbers have fewer than 2^52 of it


def chain(
    a: Any,
    b: Any,
    c: Any = None,
    /,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    bias: Any = None,
    activation: str | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """What :func:`pyclmm.gemm` gives with ``reproducible=True``, bit for bit but for the payload of NaN.

    It needs no OpenCL. It takes about 20 ns for each multiply-add of float32, and ten times as long for
    float64. Arguments and errors as for gemm, without transposes: pass ``a.T``.
    """
    if c is not None and beta is None:
        raise ArgumentError("c is given without beta; pass beta=1.0 to add c, or leave c out")
    given = {"a": a, "b": b, "c": c, "bias": bias}
    given = {name: numbers_of(name, x) for name, x in given.items() if name in "ab" or x is not None}
    a, b, c, bias = given["a"], given["b"], given.get("c"), given.get("bias")
    layouts = {name: dense(x.shape, x.dtype) for name, x in given.items()}
    epilogue = Epilogue(layouts, activation)
    named = dtypes.named_dtype(dtype)
    gemm = checked_gemm(layouts["a"], layouts["b"], dtype=named, epilogue=epilogue, reproducible=True)
    computed, shape = gemm.dtype, gemm.shape
    dtypes.check_scalars(computed, (alpha, beta or 0.0))
    accumulator = dtypes.dtype_of(dtypes.ELEMENTS[dtypes.type_name(computed, "the result")].accumulator)
    x, y = (z.astype(accumulator) for z in (np.atleast_2d(a), b if b.ndim > 1 else b[:, None]))
    if alpha == 0:  # a and b are not read
        x, y = x[..., :0], y[..., :0, :]
    sums = x @ y if accumulator.kind == "u" else _sums(x, y)
    with np.errstate(all="ignore"):
        value = _finished(
            sums.reshape(shape), _scalar(alpha, accumulator), _rest(c, beta or 0.0, bias, accumulator, shape)
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


def parts_of(x: Array) -> Array:
    """A view of *x*, if it is complex with real and imaginary parts along a last axis of their own."""
    return as_strided(x.real, (*x.shape, 2), (*x.strides, x.itemsize // 2)) if x.dtype.kind == "c" else x


def _scalar(value: complex, accumulator: np.dtype[Any]) -> Array:
    """alpha or beta as the accumulator's type has it. Integers wrap."""
    if accumulator.kind == "u":
        return np.array(int(value.real) % 2 ** (8 * accumulator.itemsize), accumulator)
    return np.array(value, accumulator)


def _rest(c: Any, beta: complex, bias: Any, accumulator: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """beta c + bias. Where there is neither, -0: the sum of it and anything is that."""
    nothing = 0 if accumulator.kind == "u" else complex(-0.0, -0.0) if accumulator.kind == "c" else -0.0
    shift = np.broadcast_to(np.asarray(nothing if bias is None else bias).astype(accumulator), shape)
    if c is None or beta == 0:
        return shift
    return _finished(np.asarray(c).astype(accumulator), _scalar(beta, accumulator), shift)


def _finished(value: Array, scale: Array, rest: Array) -> Array:
    """scale value + rest. A real scale of complex numbers multiplies their parts apart."""
    if scale.dtype.kind == "c" and scale.imag == 0:
        return _pair(fma(scale.real, value.real, rest.real), fma(scale.real, value.imag, rest.imag))
    return _mac(rest, scale, value)


def _activated(value: Array, activation: str | None) -> Array:
    if activation in (None, "none"):
        return value
    below = value.dtype.type(0) if activation == "relu" else value.dtype.type(_SLOPE) * value
    return np.asarray(np.where(value < 0, below, value))


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z for arrays of float32, or of float64, that broadcast together."""
    with np.errstate(all="ignore"):
        return _fma32(x, y, z) if z.dtype == np.float32 else _fma64(x, y, z)


def _fma32(x: Array, y: Array, z: Array) -> Array:
    total, error = _two_sum(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64))
    return _to_odd(total, error).astype(np.float32)


def _two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded sum and its error (Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded product and its error (Dekker)."""
    product = x * y
    x_high, x_low = _halves(x)
    y_high, y_low = _halves(y)
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _halves(x: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high


def _to_odd(total: Array, error: Array) -> Array:
    """total + error rounded to odd: if it is inexact, the neighbour whose last bit is 1."""
    bits = total.view(np.int64)
    away = np.where((error > 0) == (total > 0), 1, -1)  # an integer greater by 1 is the next magnitude
    inexact = (error != 0) & np.isfinite(error) & (bits & 1 == 0)
    odd: Array = np.where(inexact, bits + away, bits).view(np.float64)
    return odd


def _fma64(x: Array, y: Array, z: Array) -> Array:
    x, y, z = np.broadcast_arrays(x, y, z)
    product = x * y
    plain: Array = np.where((z == 0) & (x != 0) & (y != 0), product, product + z)  # right if a term is zero
    plain = np.where(np.isinf(z) & np.isfinite(x) & np.isfinite(y), z, plain)  # where x * y overflowed
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    general = finite & (x != 0) & (y != 0) & (z != 0)
    return np.where(general, _scaled_fma(x, y, z), plain)


def _scaled_fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z of finite numbers other than zero."""
    x, x_exponent = np.frexp(x)
    y, y_exponent = np.frexp(y)
    z, z_exponent = np.frexp(z)
    of_product = x_exponent + y_exponent
    apart = z_exponent - of_product
    near = np.clip(apart, -_FAR, _FAR)
    high, low = _two_product(x, y)
    total_high, total_low = _two_sum(np.ldexp(z, near), low)
    sum_high, sum_low = _two_sum(high, total_high)
    rest = _to_odd(*_two_sum(total_low, sum_low))
    scale = np.where(apart > _FAR, z_exponent - _FAR, of_product)
    total, error = _two_sum(sum_high, rest)
    units, more = np.ldexp(total, scale - _UNIT), np.ldexp(error, scale - _UNIT)
    return np.where(abs(units) < 2.0**52, np.ldexp(_whole(units, more), _UNIT), np.ldexp(total, scale))


def _whole(x: Array, more: Array) -> Array:
    """x + more rounded to an integer. *more* is at most half of x's last bit, so it decides ties alone."""
    tie = abs(x - np.trunc(x)) == 0.5
    decided = np.where(more > 0, np.ceil(x), np.floor(x))
    return np.where(tie & (more != 0), decided, np.rint(x))
