"""Functions that AMD's pseudocode calls, on NumPy's arrays. Their names are the pseudocode's, or NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import floor, isnan, ldexp, log2, reciprocal, rint, signbit, sqrt, trunc

from pyclmm.checks import fma_reference

from .waves import VCC, Array

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
        return x.astype(to)
    limits = np.iinfo(to)
    whole = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0))
    above, below = whole >= float(limits.max), whole <= float(limits.min)
    inside = np.where(above | below, 0.0, whole).astype(to)
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(to)


def exponent(x: Array) -> Array:
    """The exponent as it is stored."""
    shift, mask = _MANTISSA[x.dtype.itemsize]
    return (x.view(f"u{x.dtype.itemsize}") >> shift & mask).astype(np.int32)


def mantissa(x: Array) -> Any:
    """Between 0.5 and 1, with the sign of *x*."""
    return np.frexp(x)[0]


def pow(base: float, x: Array) -> Any:  # noqa: A001
    assert base == 2
    return np.exp2(x)


def fract(x: Array) -> Array:
    return x - np.floor(x)


def subnormal(x: Array) -> Any:
    return (exponent(x) == 0) & (x != 0)


def signext_from_bit(x: Array, length: Array) -> Array:
    """Bit *length* - 1 is the sign."""
    away = (32 - length.astype(np.int32)).astype(x.dtype)
    return np.where(length == 0, 0, (x << away) >> away).astype(x.dtype)


def reverse(x: Array) -> Array:
    """The 32 bits in the opposite order."""
    bits = np.unpackbits(np.ascontiguousarray(x)[..., None].view(np.uint8), axis=-1, bitorder="little")
    return np.packbits(bits, axis=-1).view(">u4")[..., 0].astype(np.uint32)


def first_one(x: Array) -> Array:
    """Zeros before the highest bit that is 1; -1 if none is."""
    return np.where(x == 0, -1, 32 - np.frexp(x.astype(np.float64))[1]).astype(np.int32)


def last_one(x: Array) -> Array:
    """Zeros after the lowest bit that is 1; -1 if none is."""
    return np.where(x == 0, -1, np.frexp((x & -x).astype(np.float64))[1] - 1).astype(np.int32)


def byte_permute(high: Array, low: Array, selector: Array) -> Array:
    """Bytes of two words, and constants: each byte of *selector* chooses one byte of the result."""
    found = np.zeros(np.broadcast_shapes(np.shape(high), np.shape(low), np.shape(selector)), np.uint32)
    both = wide(*np.broadcast_arrays(low, high))
    for place in range(0, 32, 8):
        chosen = (selector >> np.uint32(place) & np.uint32(0xFF)).astype(np.uint64)
        byte = both >> (chosen & 7) * 8 & 0xFF
        signs = (both >> (chosen & 3) * 16 + 15 & 1) * 0xFF
        special = np.where(chosen == 12, 0, np.where(chosen > 12, 0xFF, signs))
        found |= np.where(chosen < 8, byte, special).astype(np.uint32) << np.uint32(place)
    return found


def lane_of(x: Array, lane: Array) -> Any:
    """The value of one lane of each wavefront."""
    return x[np.arange(len(x)), np.ravel(lane) % x.shape[1]]


def with_lane(x: Array, value: Array, lane: Array) -> Array:
    """*x*, where *lane* has *value*."""
    found = x.copy()
    found[np.arange(len(x)), np.ravel(lane) % x.shape[1]] = np.ravel(value)
    return found


OF_PSEUDOCODE = {one.__name__: one for one in (
    fma, exponent, mantissa, ldexp, pow, fract, signext_from_bit, first_one, last_one, subnormal, reciprocal,
    byte_permute, floor, trunc, rint, sqrt, log2, lane_of, with_lane,
)} | {"abs": np.abs, "sign": signbit, "isNAN": isnan}  # fmt: skip


def wide(low: Array, high: Array) -> Array:
    """Words as the halves of 64 bits."""
    found = np.empty((*low.shape, 2), np.uint32)
    found[..., 0], found[..., 1] = low, high
    return found.view(np.uint64)[..., 0]


def special(g: Any, name: str) -> Array:
    """Operands that are neither registers nor numbers."""
    if name.endswith("scc"):
        return np.asarray(g.scc, np.uint32)
    lanes = g.active if name.endswith("execz") else g.mask(VCC)
    return np.asarray(~lanes.any(axis=1), np.uint32)


OF_CODE = {**vars(np), **OF_PSEUDOCODE, **{one.__name__: one for one in (converted, reverse, wide, special)}}
