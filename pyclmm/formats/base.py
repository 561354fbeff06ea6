"""The interface of a format of quantised weights, and the two ways in which rows are laid out. Pure NumPy.

Values are computed in float32, in one order, by operations that NumPy and the headers in cl/formats/ round
alike.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

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
    bytes. ``header``, below cl/, turns 32 weights into numbers, with the macros ``defines``.
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

    @property
    def has_codes(self) -> bool:
        """Whether a weight is scale * code + offset of whole numbers that the header gives (codes64)."""
        return False

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


class BlockFormat(Format):
    """A format of GGUF: blocks of bytes, one after another, each with its scales."""

    nbytes: ClassVar[int]  # of a block
    halves: ClassVar[tuple[int, ...]]  # where in a block float16 numbers are
    most: ClassVar[int]  # about the largest whole number that a scale multiplies

    def row_nbytes(self, k: int) -> int:
        return k // self.block * self.nbytes

    @abstractmethod
    def values(self, blocks: Array) -> Array:
        """The float32 values, (count, block), of *blocks*, (count, nbytes) of uint8."""

    def encoded(self, w: Array) -> Array:
        """The blocks, (count, nbytes) of uint8, for *w*, (count, block) of float32. Raises as quantize."""
        return super().quantize(w)

    def dequantize(self, rows: Array, k: int) -> Array:
        blocks = np.ascontiguousarray(rows).reshape(-1, self.nbytes)
        with np.errstate(all="ignore"):  # any bits are weights
            return self.values(blocks).reshape(len(rows), k)

    def quantize(self, w: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.encoded(w.reshape(-1, self.block)).reshape(len(w), self.row_nbytes(w.shape[1]))

    def drawn(self, rng: np.random.Generator, n: int, k: int) -> Array:
        blocks = rng.integers(0, 256, (n * k // self.block, self.nbytes), np.uint8)
        for at in self.halves:
            scales = rng.uniform(-0.125, 0.125, len(blocks)) / self.most
            blocks[:, at : at + 2] = scales.astype(np.float16).view(np.uint8).reshape(-1, 2)
        return blocks.reshape(n, self.row_nbytes(k))


def block_format(kind: type[BlockFormat], bits: int, group_size: int, block: int) -> BlockFormat:
    """The one format of the class *kind*, by whose name it is called."""
    name = kind.__name__.lower()
    align = 2 if kind.halves else 1
    return kind(name, name, bits, group_size, block, f"formats/{name}.h", align=align)


def half_at(blocks: Array, at: int) -> Array:
    """The float16 numbers at byte *at* of each block, as float32, (count, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def halves_of(x: Array) -> Array:
    """The bytes of *x*, (count, 1), as float16."""
    return x.astype("<f2").view(np.uint8)


def shifted(packed: Array, shifts: tuple[int, ...], bits: int) -> Array:
    """Numbers of *bits* from bytes, (count, M, L): (count, M, len(shifts), L), one for each shift."""
    by = np.array(shifts, np.uint8).reshape(1, 1, -1, 1)
    return (packed[:, :, None, :] >> by) & np.uint8((1 << bits) - 1)


def nibbles(packed: Array, per: int) -> Array:
    """The low halves of each *per* bytes, then their high halves: (count, 2 * bytes)."""
    count, nbytes = packed.shape
    return shifted(packed.reshape(count, nbytes // per, per), (0, 4), 4).reshape(count, 2 * nbytes)


def inverse(d: Array) -> Array:
    """1 / d, and 0 where d is 0."""
    return np.where(d == 0, np.float32(0), np.float32(1) / d)
