"""The interface of a format of quantised weights, and rows of packed weights behind one another. Pure NumPy.

Values are computed in float32, in one order, by operations that NumPy and the headers in cl/formats/ round
alike.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError, UnsupportedError

Array = np.ndarray[Any, np.dtype[Any]]
ALIGN = 16  # bytes, of which a kernel reads as many of packed weights at once
RUN = 32  # weights that a kernel turns into numbers at a time: every K is a multiple of it


@dataclass(frozen=True)
class Format(ABC):
    """How N x K weights are stored: N rows of bytes. ``name`` names it among all formats.

    ``bits`` of a weight, besides scales; ``group_size``: weights along K that share a scale; ``block``: K is
    a multiple of it; ``dtype``: what the values stand for; ``align``: rows start at multiples of so many
    bytes. ``header``, below cl/, turns 32 weights into numbers, with the macros ``defines``. ``has_codes``: a
    weight is scale * code + offset of whole numbers that the header gives (codes64).
    """

    name: str
    mode: str
    bits: int
    group_size: int
    block: int
    header: str
    dtype: str = "float32"
    align: int = 1
    defines: tuple[tuple[str, int | str], ...] = ()
    has_codes: bool = False
    order = "rows"  # in which weights lie: one behind the other along K, and each row behind the last
    together = 1  # rows that cannot be divided

    def padded(self, k: int) -> int:
        """The least number from *k* on of which there are rows: the smallest is one group."""
        step = math.lcm(self.block, RUN)
        return max(-(-k // step), 1) * step

    def check_depth(self, k: int) -> None:
        """Raise ShapeError unless there are rows of *k* weights."""
        if k != self.padded(k):
            raise ShapeError(
                f"K is {k}, no multiple of {self.padded(1)}, which {self.name} needs; another group_size or "
                f"mode, or pad=True of pyclmm.quantize, which makes it {self.padded(k)}, would do"
            )

    @abstractmethod
    def row_nbytes(self, k: int) -> int:
        """Bytes of a row of *k* weights."""

    @abstractmethod
    def dequantize(self, rows: Array, k: int) -> Array:
        """The float32 values, (N, K), of *rows*, (N, row_nbytes(k)) of uint8."""

    def quantize(self, w: Array) -> Array:
        """The rows for *w*, (N, K) of float32. Raises UnsupportedError if the format is for reading alone."""
        raise UnsupportedError(
            f"mode {self.mode!r} is read, not made; pyclmm.quantize makes q4_0, q8_0 and affine weights, or "
            "have llama.cpp make it, and read the file with pyclmm.from_gguf"
        )

    @abstractmethod
    def drawn(self, rng: np.random.Generator, n: int, k: int) -> Array:
        """*n* rows of random weights, of any bits, with scales around 1 / 8: for checks."""


class Parts(NamedTuple):
    """The parts of rows, as views: bytes of packed weights, and of scales and biases, (..., bytes)."""

    packed: Array
    scales: Array
    biases: Array


class RowFormat(Format):
    """A format whose rows are [packed weights | scales | biases], with zeros up to a multiple of 16 bytes.

    Weight k is at bit k * bits of the row, read as one little-endian number, as in the 32-bit words of MLX.
    """

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
