"""mxfp4, mxfp8, nvfp4: small floating-point numbers in groups with one scale, as MLX lays them out.

The numbers are E2M1 and E4M3, the scales E4M3 and the powers of two E8M0. Source: OCP Microscaling Formats
(MX) Specification, version 1.0, sections 5.3 and 5.4.
"""

from __future__ import annotations

import numpy as np

from .base import ALIGN, Array, RowFormat

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


class SmallFloats(RowFormat):
    """E2M1 of 4 bits or E4M3 of 8 times a scale: a power of two, E8M0; for a group of 16 an E4M3."""

    @property
    def _table(self) -> Array:
        return E2M1 if self.bits == 4 else E4M3

    @property
    def _by_powers(self) -> bool:
        return self.group_size == 32

    def widened(self, scales: Array) -> Array:
        """The float32 numbers of the bytes *scales*."""
        return power_of_two(scales) if self._by_powers else signed(E4M3, scales)

    def dequantize(self, rows: Array, k: int) -> Array:
        scales = self.widened(self.parts(rows, k).scales)
        with np.errstate(all="ignore"):
            return (signed(self._table, self.codes(rows, k)) * scales[:, :, None]).reshape(len(rows), k)

    def quantize(self, w: Array) -> Array:
        groups = w.reshape(len(w), -1, self.group_size)
        largest = abs(groups).max(axis=-1)
        if self._by_powers:
            scales = code_of_power(largest, 2 if self.bits == 4 else 8)
        else:
            scales = nearest(E4M3, largest / E2M1[-1])
        by = self.widened(scales)[:, :, None]
        codes = nearest(self._table, groups / np.where(by == 0, np.float32(1), by))
        return self.joined(codes.reshape(w.shape), scales)

    def drawn_scales(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, ...]:
        low, high = ((122, 126) if self.bits == 4 else (115, 118)) if self._by_powers else (24, 48)
        return (rng.integers(low, high, shape, np.uint8),)

    def drawn(self, rng: np.random.Generator, n: int, k: int) -> Array:
        rows = super().drawn(rng, n, k)
        if self.bits == 8:  # no NaN
            packed = self.parts(rows, k).packed
            packed[packed & 127 == 127] = 1
        return rows


def _format(mode: str, bits: int, group_size: int) -> SmallFloats:
    defines = (("QUANT_BITS", bits), ("GROUP_SIZE", group_size))
    return SmallFloats(mode, mode, bits, group_size, 32, "formats/mx.h", "float32", ALIGN, defines)


FORMATS = (_format("mxfp4", 4, 32), _format("mxfp8", 8, 32), _format("nvfp4", 4, 16))
