"""Small floating-point numbers: E2M1, E4M3 and the powers of two E8M0.

Source: OCP Microscaling Formats (MX) Specification, version 1.0, sections 5.3 and 5.4.
"""

from __future__ import annotations

import numpy as np

from .base import Array

_CODES = np.arange(128)
_EXPONENT, _MANTISSA = _CODES >> 3, _CODES & 7
_POSITIVE = np.where(_EXPONENT == 0, _MANTISSA * 2.0**-9, (8 + _MANTISSA) * 2.0 ** (_EXPONENT - 10.0)).astype(
    np.float32
)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)  # by the low three bits of a code
E4M3 = np.append(_POSITIVE[:-1], np.float32(np.nan))  # by the low seven


def signed(table: Array, codes: Array) -> Array:
    """The numbers of *codes*, whose highest bit is the sign of a number of *table*."""
    sign = np.where(codes & len(table), np.float32(-1), np.float32(1))
    return np.asarray(table[codes & len(table) - 1] * sign)


def nearest(table: Array, x: Array) -> Array:
    """The codes of the numbers nearest to *x*; the even one of two. The largest stands for what is beyond."""
    finite = table[np.isfinite(table)]
    between = (finite[1:] + finite[:-1]) / 2
    size = abs(x)
    code = np.searchsorted(between, size)
    at_end = np.minimum(code, len(between) - 1)
    code += (size == between[at_end]) & (code % 2 == 1) & (code <= at_end)
    return (code + np.where(np.signbit(x), len(table), 0)).astype(np.uint8)


def power_of_two(codes: Array) -> Array:
    """2^(code - 127) of each E8M0 code; NaN for 255."""
    found = np.ldexp(np.float32(1), np.minimum(codes, 254).astype(np.int32) - 127)
    return np.where(codes == 255, np.float32(np.nan), found).astype(np.float32)


def code_of_power(largest: Array, exponent: int) -> Array:
    """The E8M0 codes of scales for numbers up to *largest*, of a type up to exponent *exponent*."""
    _, own = np.frexp(largest)
    return np.where(largest > 0, own - 1 - exponent + 127, 0).clip(0, 254).astype(np.uint8)
