"""The formats of GGUF: blocks of bytes, one after another, with scales. ``OF_GGUF`` has their records.

A weight is scale * number + bias, where it has a bias; the number follows from its code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .affine import GROUPS
from .base import Array, Format
from .mx import E2M1, code_of_power, signed


class Bits(NamedTuple):
    """Codes of *width* bits in the bytes *start* to *stop* of a block: of each *run* bytes the lowest bits
    are as many codes, the bits above them the next ones.
    """

    start: int
    stop: int
    run: int
    width: int = 4

    @property
    def _shape(self) -> tuple[int, int, int]:
        """Runs, codes of a byte, bytes of a run."""
        return (self.stop - self.start) // self.run, 8 // self.width, self.run

    def read(self, blocks: Array) -> Array:
        """The codes, (count, codes) of uint8."""
        runs, each, run = self._shape
        packed = blocks[:, self.start : self.stop].reshape(len(blocks), runs, 1, run)
        shifts = np.arange(0, 8, self.width, dtype=np.uint8)[:, None]
        found = packed >> shifts & np.uint8((1 << self.width) - 1)
        return found.reshape(len(blocks), runs * each * run)

    def write(self, blocks: Array, codes: Array) -> None:
        """Store the lowest bits of *codes*."""
        apart = (codes & np.uint8((1 << self.width) - 1)).reshape(len(blocks), *self._shape)
        packed = apart[:, :, 0]
        for place in range(1, 8 // self.width):
            packed = packed | apart[:, :, place] << np.uint8(place * self.width)
        blocks[:, self.start : self.stop] = packed.reshape(len(blocks), self.stop - self.start)


def read(blocks: Array, *parts: Bits) -> Array:
    """The codes whose lowest bits are in the first of *parts*, and their next bits in the next one."""
    found, width = parts[0].read(blocks), parts[0].width
    for part in parts[1:]:
        found |= part.read(blocks) << np.uint8(width)
        width += part.width
    return found


def half_at(blocks: Array, at: int = 0) -> Array:
    """The float16 numbers at byte *at* of each block, as float32, (count, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def put_half(blocks: Array, at: int, x: Array) -> None:
    """Store *x*, (count, 1), as float16 at byte *at* of each block."""
    blocks[:, at : at + 2] = x.astype("<f2").view(np.uint8)


def less(zero: int, codes: Array) -> Array:
    """The numbers of *codes* of which *zero* stands for 0."""
    numbers = codes.astype(np.float32)
    numbers -= np.float32(zero)
    return numbers


def inverse(d: Array) -> Array:
    """1 / d, and 0 where d is 0."""
    return np.where(d == 0, np.float32(0), np.float32(1) / d)


@dataclass(frozen=True, kw_only=True)
class BlockFormat(Format):
    """A format of GGUF. ``nbytes`` of a block, of which those at ``halves`` begin float16 numbers. ``codes``:
    where the bits of the weights are, the lowest first; ``number`` makes float32 of them, of which ``most``
    is about the largest that a scale multiplies.

    ``scales``: the scales in blocks, (count, groups) of float32, and the biases, or None. ``made``: stores
    the scales for (count, block) weights of float32 in blocks, and returns the codes; None if weights are
    read alone.
    """

    nbytes: int
    codes: tuple[Bits, ...]
    most: int
    halves: tuple[int, ...] = (0,)
    # A copy from another process has functions that are not these, and is the same format.
    scales: Callable[[Array], tuple[Array, Array | None]] = field(compare=False)
    number: Callable[[Array], Array] = field(default=partial(less, 0), compare=False)
    made: Callable[[Array, Array], Array] | None = field(default=None, compare=False)

    def row_nbytes(self, k: int) -> int:
        return k // self.block * self.nbytes

    def dequantize(self, rows: Array, k: int) -> Array:
        blocks = np.ascontiguousarray(rows).reshape(-1, self.nbytes)
        with np.errstate(all="ignore"):  # any bits are weights
            scales, biases = self.scales(blocks)
            values = self.number(read(blocks, *self.codes))
            values = values.reshape(*scales.shape, self.block // scales.shape[1])
            values *= scales[:, :, None]
            if biases is not None:
                values += biases[:, :, None]
        return values.reshape(len(rows), k)

    @property
    def is_affine(self) -> bool:
        """Whether a weight is scale * integer + bias in groups that affine weights have (see as_affine)."""
        return self.group_size in GROUPS and self.number is not _doubled

    def as_affine(self, rows: Array, k: int) -> tuple[Array, Array, Array]:
        """*rows* as codes, (N, K) of uint8, scales and biases, (N, K / group_size) of float32.

        A weight is scale * code + bias, of the value that dequantize() gives: for a code of c bits and scales
        of s the product has c + s bits, at most 22, so float32 holds it, and the sum is rounded once.
        """
        blocks = np.ascontiguousarray(rows).reshape(-1, self.nbytes)
        zero = -self.number(np.arange(1 << self.bits, dtype=np.uint8)).min()  # the code that stands for 0
        with np.errstate(all="ignore"):
            scales, biases = self.scales(blocks)
            biases = (0 if biases is None else biases) - zero * scales
        codes = (self.number(read(blocks, *self.codes)) + zero).astype(np.uint8)
        groups = (len(rows), k // self.group_size)
        return codes.reshape(len(rows), k), scales.reshape(groups), biases.reshape(groups)

    def quantize(self, w: Array) -> Array:
        if self.made is None:
            return super().quantize(w)
        blocks = np.zeros((w.size // self.block, self.nbytes), np.uint8)
        with np.errstate(all="ignore"):
            codes, width = self.made(w.reshape(-1, self.block), blocks), 0
        for part in self.codes:
            part.write(blocks, codes >> np.uint8(width))
            width += part.width
        return blocks.reshape(len(w), self.row_nbytes(w.shape[1]))

    def drawn(self, rng: np.random.Generator, n: int, k: int) -> Array:
        blocks = rng.integers(0, 256, (n * k // self.block, self.nbytes), np.uint8)
        for at in self.halves:
            put_half(blocks, at, rng.uniform(-0.125, 0.125, (len(blocks), 1)) / self.most)
        if not self.halves:  # a power of two
            blocks[:, 0] = rng.integers(120, 126, len(blocks))
        return blocks.reshape(n, self.row_nbytes(k))


# ---- scales and biases ------------------------------------------------------------------------


def _one(blocks: Array) -> tuple[Array, None]:
    return half_at(blocks), None


def _with_least(blocks: Array) -> tuple[Array, Array]:
    return half_at(blocks), half_at(blocks, 2)


def _of_4_bits(blocks: Array) -> tuple[Array, Array]:
    """16 bytes: scale in the low half, least value in the high one."""
    scale, least = (x.astype(np.float32) for x in (blocks[:, :16] & 15, blocks[:, :16] >> 4))
    return half_at(blocks, 80) * scale, -half_at(blocks, 82) * least


def _of_6_bits(blocks: Array) -> tuple[Array, None]:
    """12 bytes: four bits of each, then two."""
    return half_at(blocks, 108) * less(32, read(blocks, Bits(96, 104, 8), Bits(104, 108, 4, 2))), None


def _six_and_six(blocks: Array) -> tuple[Array, Array]:
    """12 bytes behind d and dmin: the first four of each are in the low 6 bits of bytes 0 to 7; the others
    have 4 bits in bytes 8 to 11 and two in the high bits of bytes 0 to 7.
    """
    first, second, third = (blocks[:, at : at + 4] for at in (4, 8, 12))
    scale = np.concatenate([first & 63, (third & 15) | (first >> 2 & 48)], axis=-1)
    least = np.concatenate([second & 63, third >> 4 | (second >> 2 & 48)], axis=-1)
    return half_at(blocks) * scale.astype(np.float32), -half_at(blocks, 2) * least.astype(np.float32)


def _of_bytes(blocks: Array) -> tuple[Array, None]:
    return half_at(blocks, 208) * _as_signed(blocks[:, 192:208]), None


def _power(blocks: Array) -> tuple[Array, None]:
    """2^(code - 128), of which 255 is one, too."""
    return np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128).astype(np.float32), None


def _as_signed(codes: Array) -> Array:
    return np.ascontiguousarray(codes).view(np.int8).astype(np.float32)


def _doubled(codes: Array) -> Array:
    return np.asarray(2 * signed(E2M1, codes) + np.float32(0))  # GGUF has one zero


# ---- blocks that are made ---------------------------------------------------------------------


def _around(zero: int, w: Array, blocks: Array) -> Array:
    """By a scale with which the number that is largest in size has the code 0; *zero* stands for 0."""
    d = np.take_along_axis(w, np.argmax(abs(w), axis=-1, keepdims=True), axis=-1) / np.float32(-zero)
    put_half(blocks, 0, d)
    q = np.trunc(w * inverse(d) + np.float32(zero + 0.5))
    return np.asarray(q.astype(np.uint8).clip(0, 2 * zero - 1))


def _from_least(w: Array, blocks: Array) -> Array:
    least, most = w.min(axis=-1, keepdims=True), w.max(axis=-1, keepdims=True)
    d = (most - least) / np.float32(15)
    put_half(blocks, 0, d)
    put_half(blocks, 2, least)
    q = np.trunc((w - least) * inverse(d) + np.float32(0.5))
    return np.asarray(q.astype(np.uint8).clip(0, 15))


def _to_bytes(w: Array, blocks: Array) -> Array:
    d = abs(w).max(axis=-1, keepdims=True) / np.float32(127)
    put_half(blocks, 0, d)
    x = w * inverse(d)
    q = np.trunc(x + np.copysign(np.float32(0.5), x))  # halves go away from 0
    return np.asarray(q.astype(np.int8).view(np.uint8))


def _to_floats(w: Array, blocks: Array) -> Array:
    blocks[:, :1] = code_of_power(abs(w).max(axis=-1, keepdims=True), 2)
    scales, _ = _power(blocks)
    # The first of the nearest: GGUF's own order of the codes
    away = abs(scales[:, :, None] * (2 * signed(E2M1, np.arange(16))) - w[:, :, None])
    return np.asarray(np.argmin(away, axis=-1).astype(np.uint8))


def _format(name: str, bits: int, group_size: int, block: int, **own: Any) -> BlockFormat:
    """The format called *name*, as its header is."""
    align = 2 if own.get("halves", (0,)) else 1
    return BlockFormat(name, name, bits, group_size, block, f"formats/{name}.h", align=align, **own)


OF_GGUF = (
    _format("q4_0", 4, 32, 32, nbytes=18, codes=(Bits(2, 18, 16),), number=partial(less, 8), most=16,
            scales=_one, made=partial(_around, 8), has_codes=True),
    _format("q4_1", 4, 32, 32, nbytes=20, codes=(Bits(4, 20, 16),), most=16,
            scales=_with_least, halves=(0, 2), made=_from_least, has_codes=True),
    _format("q5_0", 5, 32, 32, nbytes=22, codes=(Bits(6, 22, 16), Bits(2, 6, 1, 1)), number=partial(less, 16),
            most=32, scales=_one, made=partial(_around, 16)),
    _format("q8_0", 8, 32, 32, nbytes=34, codes=(Bits(2, 34, 32, 8),), number=_as_signed, most=256,
            scales=_one, made=_to_bytes, has_codes=True),
    _format("q2_k", 2, 16, 256, nbytes=84, codes=(Bits(16, 80, 32, 2),), most=3 * 15,
            scales=_of_4_bits, halves=(80, 82)),
    _format("q3_k", 3, 16, 256, nbytes=110, codes=(Bits(32, 96, 32, 2), Bits(0, 32, 32, 1)),
            number=partial(less, 4), most=4 * 32, scales=_of_6_bits, halves=(108,)),
    _format("q4_k", 4, 32, 256, nbytes=144, codes=(Bits(16, 144, 32),), most=15 * 63,
            scales=_six_and_six, halves=(0, 2), has_codes=True),
    _format("q5_k", 5, 32, 256, nbytes=176, codes=(Bits(48, 176, 32), Bits(16, 48, 32, 1)), most=31 * 63,
            scales=_six_and_six, halves=(0, 2)),
    _format("q6_k", 6, 16, 256, nbytes=210, codes=(Bits(0, 128, 64), Bits(128, 192, 32, 2)),
            number=partial(less, 32), most=32 * 127, scales=_of_bytes, halves=(208,)),
    _format("mxfp4_gguf", 4, 32, 32, nbytes=17, codes=(Bits(1, 17, 16),), number=_doubled, most=1,
            scales=_power, halves=(), made=_to_floats),
)  # fmt: skip
