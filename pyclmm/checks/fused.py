"""IEEE fused multiply-add for NumPy arrays: ``x * y + z`` with one rounding, to nearest even.

NumPy has no such function, and Python has one from 3.13 on, for single numbers. This one is exact on any host
whose float64 additions and multiplications are IEEE's:

float32  A product has at most 48 bits, so float64 holds it. The sum with z is rounded to odd in float64 and
         then to float32, which is as good as one rounding (Boldo and Melquiond, "Emulation of FMA and
         Correctly Rounded Sums", 2008).
float64  The same paper's algorithm, on operands scaled so that nothing overflows or gets subnormal. Results
         that are subnormal themselves are rounded once more from the unrounded sum, to whole units.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_SPLITTER = 2.0**27 + 1  # Dekker's: cuts 53 bits into 26 and 27
_FAR = 200  # powers of two: beyond 2 * 53 bits, the lesser of two terms is only a direction of rounding
_UNIT = -1074  # exponent of the least float64; subnormal numbers have fewer than 2^52 of it


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
