"""Formats whose rows are [packed weights | scales | biases], filled with zeros to a multiple of 16 bytes.

Weight k is at bit k * bits of the row, read as one little-endian number, as in the 32-bit words of MLX.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from .base import Array, Format

ALIGN = 16  # bytes, of which a kernel reads as many at once


class Parts(NamedTuple):
    """The parts of rows, as views: bytes of packed weights, and of scales and biases, (..., bytes)."""

    packed: Array
    scales: Array
    biases: Array


class RowFormat(Format):
    """A format with the packed weights of a row before its scales."""

    scale_nbytes = 1
    biases = 0  # for each scale

    def row_nbytes(self, k: int) -> int:
        used = k * self.bits // 8 + k // self.group_size * self.scale_nbytes * (1 + self.biases)
        return -(-used // ALIGN) * ALIGN

    def parts(self, rows: Array, k: int) -> Parts:
        """The parts of *rows* of *k* weights."""
        start, step = k * self.bits // 8, k // self.group_size * self.scale_nbytes
        ends = (start, start + step, start + step * (1 + self.biases))
        return Parts(rows[..., :start], rows[..., start : ends[1]], rows[..., ends[1] : ends[2]])

    def codes(self, rows: Array, k: int) -> Array:
        """The packed numbers, (N, K / group_size, group_size) of uint8."""
        packed = np.ascontiguousarray(self.parts(rows, k).packed)
        bits = np.unpackbits(packed, axis=-1, bitorder="little").reshape(len(rows), k, self.bits)
        found = np.packbits(bits, axis=-1, bitorder="little")
        return found.reshape(len(rows), k // self.group_size, self.group_size)

    def joined(self, codes: Array, scales: Array, biases: Array | None = None) -> Array:
        """Rows of *codes*, (N, K) of uint8, and of the scales and biases, (N, K / group_size)."""
        n, k = codes.shape
        rows = np.zeros((n, self.row_nbytes(k)), np.uint8)
        parts = self.parts(rows, k)
        bits = np.unpackbits(codes[:, :, None], axis=-1, bitorder="little")[:, :, : self.bits]
        parts.packed[...] = np.packbits(bits.reshape(n, k * self.bits), axis=-1, bitorder="little")
        parts.scales[...] = np.ascontiguousarray(scales).view(np.uint8)
        if biases is not None:
            parts.biases[...] = np.ascontiguousarray(biases).view(np.uint8)
        return rows

    def drawn(self, rng: np.random.Generator, n: int, k: int) -> Array:
        codes = rng.integers(0, 1 << self.bits, (n, k), np.uint8)
        return self.joined(codes, *self.drawn_scales(rng, (n, k // self.group_size)))

    @abstractmethod
    def drawn_scales(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, ...]:
        """Random scales, and biases where the format has them, as they are stored."""
