"""affine: scale * q + bias, a scale and a bias for each group along K, as MLX's `quantize` makes them."""

from __future__ import annotations

import numpy as np

from .base import ALIGN, Array, RowFormat

BITS, GROUPS = (2, 3, 4, 6, 8), (32, 64, 128)
SCALES = {"float32": 4, "float16": 2, "bfloat16": 2}  # their types, and bytes
# The least scales, before they are rounded, that every device reads: float16's denormals are widened exactly.
_LEAST = {"float32": np.float32(2**-126), "float16": np.float32(2**-24), "bfloat16": np.float32(2**-126)}


class Affine(RowFormat):
    """float32, float16 or bfloat16 scales and biases, of the type that the weights had."""

    biases = 1

    @property
    def scale_nbytes(self) -> int:  # type: ignore[override]
        return SCALES[self.dtype]

    def dequantize(self, rows: Array, k: int) -> Array:
        parts = self.parts(rows, k)
        scales, biases = (widened(x, self.dtype)[:, :, None] for x in (parts.scales, parts.biases))
        with np.errstate(all="ignore"):
            return (self.codes(rows, k).astype(np.float32) * scales + biases).reshape(len(rows), k)

    def quantize(self, w: Array) -> Array:
        with np.errstate(all="ignore"):  # a range may be 0, or infinite
            return self._quantized(w)

    def _quantized(self, w: Array) -> Array:
        """One end of a group's range, the one farther from 0, has a code of its own, and so has 0."""
        groups = w.reshape(len(w), -1, self.group_size)
        least, most = groups.min(axis=-1), groups.max(axis=-1)
        ends = np.float32((1 << self.bits) - 1)
        from_least = abs(least) > abs(most)
        size = np.maximum((most - least) / ends, _LEAST[self.dtype])
        scale, edge = np.where(from_least, size, -size), np.where(from_least, least, most)
        steps = np.rint(edge / scale)
        has_zero = steps != 0
        scale = np.where(has_zero, edge / np.where(has_zero, steps, 1), scale)
        stored = [narrowed(x, self.dtype) for x in (scale, np.where(has_zero, edge, np.float32(0)))]
        scale, bias = (widened(x.view(np.uint8), self.dtype)[:, :, None] for x in stored)
        q = np.nan_to_num(np.rint((groups - bias) / scale)).clip(0, ends).astype(np.uint8)
        return self.joined(q.reshape(w.shape), *stored)

    def drawn_scales(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, ...]:
        sizes = (0.125 / (1 << self.bits), 0.125)
        drawn = [rng.uniform(-size, size, shape).astype(np.float32) for size in sizes]
        return tuple(narrowed(x, self.dtype) for x in drawn)


def widened(stored: Array, dtype: str) -> Array:
    """The numbers of *dtype* in bytes, (N, bytes), as float32."""
    stored = np.ascontiguousarray(stored)
    if dtype == "bfloat16":
        return (stored.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return stored.view("<f4" if dtype == "float32" else "<f2").astype(np.float32)


def narrowed(x: Array, dtype: str) -> Array:
    """float32 numbers as *dtype*; bfloat16 by its bits, rounded to the nearest, to the even one of two."""
    x = np.ascontiguousarray(x, np.float32)
    if dtype == "bfloat16":
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return x.astype("<f4" if dtype == "float32" else "<f2")


def _format(bits: int, group_size: int, number: int, dtype: str) -> Affine:
    defines = (("QUANT_BITS", bits), ("GROUP_SIZE", group_size), ("SCALE_TYPE", number))
    name = f"affine{bits}_g{group_size}_{dtype}"
    how = "formats/affine.h", dtype, ALIGN, defines, bits in (4, 8)
    return Affine(name, "affine", bits, group_size, group_size, *how)


FORMATS = tuple(_format(b, g, i, t) for b in BITS for g in GROUPS for i, t in enumerate(SCALES))
