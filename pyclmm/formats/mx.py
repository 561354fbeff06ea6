"""mxfp4, mxfp8, nvfp4: small floating-point numbers in groups with one scale, as MLX lays them out."""

from __future__ import annotations

import numpy as np

from .base import Array
from .floats import E2M1, E4M3, code_of_power, nearest, power_of_two, signed
from .rows import ALIGN, RowFormat


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
