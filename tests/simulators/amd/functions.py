"""Functions that AMD's pseudocode calls, on NumPy's arrays. Their names are the pseudocode's, or NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyclmm.checks import fma_reference

from .waves import Array


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z, rounded once."""
    if z.dtype == np.float32:
        total = x.astype(np.float64) * y + z
        # Rounding twice differs only from a float64 in the middle of two float32, or below their range.
        low = total.view(np.int64) & 0x1FFFFFFF
        if not ((low == 0x10000000) | (np.abs(total) < 2.0**-126) & (total != 0)).any():
            return np.asarray(total.astype(np.float32))
    return np.asarray(fma_reference.fma(*np.broadcast_arrays(x, y, z)))


def converted(x: Array, to: type) -> Array:
    """*x* in another type: to integers towards zero, at the ends of their range where *x* is beyond."""
    if x.dtype.kind != "f" or np.dtype(to).kind == "f":
        return x.astype(to)
    limits = np.iinfo(to)
    return np.clip(np.nan_to_num(x.astype(np.float64), nan=0.0), limits.min, limits.max).astype(to)


def exponent(x: Array) -> Array:
    """The exponent as it is stored."""
    shift, mask = (23, 0xFF) if x.dtype.itemsize == 4 else (52, 0x7FF)
    return (x.view(f"u{x.dtype.itemsize}") >> shift & mask).astype(np.int32)


def first_one(x: Array) -> Array:
    """Zeros before the highest bit that is 1; -1 if none is."""
    return np.where(x == 0, -1, 32 - np.frexp(x.astype(np.float64))[1]).astype(np.int32)


def first_lane(x: Array, lanes: Array) -> Any:
    """The value of each wavefront's first lane of *lanes*, or of its first if there is none."""
    return x[np.arange(len(x)), lanes.argmax(axis=1)][:, None]


def wide(low: Array, high: Array) -> Array:
    """Words as the halves of 64 bits."""
    shape = low.shape if low.shape == high.shape else np.broadcast_shapes(low.shape, high.shape)
    found = np.empty((*shape, 2), np.uint32)
    found[..., 0], found[..., 1] = low, high
    return found.view(np.uint64)[..., 0]


# The types of what they give; "": that of what they are given.
_ALIKE = "fma ldexp floor trunc rint sqrt log2 exp2 abs mantissa first_one first_lane"
OF_PSEUDOCODE = dict.fromkeys(_ALIKE.split(), "") | {"exponent": "i32"}
OF_PSEUDOCODE |= dict.fromkeys(("any_lane", "sign", "isNAN", "subnormal"), "bool")
OF_CODE = vars(np) | {
    "fma": fma, "converted": converted, "exponent": exponent, "first_one": first_one, "wide": wide,
    "first_lane": first_lane, "sign": np.signbit, "isNAN": np.isnan,
    "mantissa": lambda x: np.frexp(x)[0],  # between 0.5 and 1, with the sign of x
    "subnormal": lambda x: (exponent(x) == 0) & (x != 0),
    "any_lane": lambda lanes: lanes.any(axis=1, keepdims=True),
}  # fmt: skip
