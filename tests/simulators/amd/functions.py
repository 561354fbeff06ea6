"""Functions that AMD's pseudocode calls, on NumPy's arrays. Their names are the pseudocode's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import (  # noqa: F401  (names of the code that meaning.py writes)
    bool_,
    float16,
    float32,
    float64,
    floor,
    inf,
    int8,
    int16,
    int32,
    int64,
    log2,
    nan,
    pi,
    rint,
    sqrt,
    trunc,
    uint8,
    uint16,
    uint32,
    uint64,
    where,
)

from pyclmm.checks import fma_reference

Array = np.ndarray[Any, np.dtype[Any]]
_MANTISSA = {2: (10, 0x1F), 4: (23, 0xFF), 8: (52, 0x7FF)}  # by bytes: bits, and the exponent's mask


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z, rounded once."""
    if z.dtype == np.float32:
        total = x.astype(np.float64) * y + z
        # Rounding twice differs only from a float64 in the middle of two float32, or below their range.
        low = total.view(np.int64) & 0x1FFFFFFF
        if not ((low == 0x10000000) | (np.abs(total) < 2.0**-126) & (total != 0)).any():
            return np.asarray(total.astype(np.float32))
    if z.dtype == np.float16:
        return np.asarray((x.astype(np.float64) * y + z).astype(np.float16))
    return np.asarray(fma_reference.fma(*np.broadcast_arrays(x, y, z)))


def converted(x: Array, to: type) -> Array:
    """*x* in another type: to integers towards zero, at the ends of their range where *x* is beyond."""
    if x.dtype.kind != "f" or np.dtype(to).kind == "f":
        return np.asarray(x.astype(to))
    limits = np.iinfo(to)
    whole = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0))
    above, below = whole >= float(limits.max), whole <= float(limits.min)
    inside = np.where(above | below, 0.0, whole).astype(to)
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(to)


def exponent(x: Array) -> Array:
    """The exponent as it is stored."""
    shift, mask = _MANTISSA[x.dtype.itemsize]
    unsigned = x.view(f"u{x.dtype.itemsize}")
    return np.asarray((unsigned >> shift & mask).astype(np.int32))


def mantissa(x: Array) -> Array:
    """Between 0.5 and 1, with the sign of *x*."""
    return np.asarray(np.frexp(x)[0])


def sign(x: Array) -> Array:
    return np.asarray(np.signbit(x))


def ldexp(x: Array, n: Array | int) -> Array:
    return np.asarray(np.ldexp(x, n).astype(x.dtype))


def pow(base: float, x: Array) -> Array:  # noqa: A001
    assert base == 2
    return np.asarray(np.exp2(x))


def abs(x: Array) -> Array:  # noqa: A001
    return np.asarray(np.abs(x))


def fract(x: Array) -> Array:
    return np.asarray(x - np.floor(x))


def isEven(x: Array) -> Array:
    return np.asarray(np.remainder(x, 2) == 0)


def isNAN(x: Array) -> Array:
    return np.asarray(np.isnan(x))


isQuietNAN = isNAN  # noqa: N816


def isSignalNAN(x: Array) -> Array:
    """No: kernels make none, and what a quiet one becomes is the same."""
    return np.zeros(np.shape(x), bool)


def cvtToQuietNAN(x: Array) -> Array:
    return x


def signext(x: Array) -> Array:
    """Types carry signs already."""
    return x


def signext_from_bit(x: Array, length: Array) -> Array:
    """Bit *length* - 1 is the sign."""
    away = (32 - length.astype(np.int32)).astype(x.dtype)
    return np.where(length == 0, 0, (x << away) >> away).astype(x.dtype)


def reverse(x: Array) -> Array:
    """The 32 bits in the opposite order."""
    found = np.zeros_like(x)
    for place in range(32):
        found |= (x >> np.uint32(place) & np.uint32(1)) << np.uint32(31 - place)
    return found


def first_one(x: Array) -> Array:
    """Zeros before the highest bit that is 1; -1 if none is."""
    return np.where(x == 0, -1, 32 - np.frexp(x.astype(np.float64))[1]).astype(np.int32)


def last_one(x: Array) -> Array:
    """Zeros after the lowest bit that is 1; -1 if none is."""
    lowest = x & (~x + np.uint32(1))
    return np.asarray(np.where(x == 0, -1, np.frexp(lowest.astype(np.float64))[1] - 1).astype(np.int32))


def subnormal(x: Array) -> Array:
    return np.asarray((exponent(x) == 0) & (x != 0))


def reciprocal(x: Array) -> Array:
    return np.asarray(1 / x)


def byte_permute(high: Array, low: Array, selector: Array) -> Array:
    """Bytes of two words, and constants: each byte of *selector* chooses one byte of the result."""
    found = np.zeros(np.broadcast_shapes(np.shape(high), np.shape(low), np.shape(selector)), np.uint32)
    both = high.astype(np.uint64) << np.uint64(32) | low
    for place in range(0, 32, 8):
        chosen = selector >> np.uint32(place) & np.uint32(0xFF)
        byte = both >> (chosen.astype(np.uint64) & np.uint64(7)) * np.uint64(8)
        sign_at = (chosen.astype(np.uint64) & np.uint64(3)) * np.uint64(16) + np.uint64(15)
        signs = (both >> sign_at & np.uint64(1)) * np.uint64(0xFF)
        special = np.where(chosen == 12, np.uint64(0), np.where(chosen > 12, np.uint64(0xFF), signs))
        byte = np.where(chosen < 8, byte & np.uint64(0xFF), special)
        found |= byte.astype(np.uint32) << np.uint32(place)
    return found
