"""Affine weights of 4 and 8 bits in the order of matrix units' fragments (cl/nvidia/fragment_blocks.h).

64 rows are a block; the last may have fewer. A block has its rows' bytes in another order: for each 128 of K
the weights of all rows, then for each group of K a pair, scale and bias, of all rows. What the work-items of
a matrix unit multiply in a step is contiguous then, and each finds its weights in words of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .affine import FORMATS, Affine
from .base import Array, Format

_BLOCK, _SLICE = 64, 128  # rows, and of K


@dataclass(frozen=True, kw_only=True)
class Fragments(Format):
    """Its rows of bytes, (..., N, bytes), are as long as those of ``in_rows``, weights one behind the
    other, but a row's are anywhere in its block.

    Within 16 bytes, a part, field (2 t + c) E + e is weight 8 e + 2 t + c, t < 4, c < 2, E = 16 / bits.
    """

    in_rows: Affine
    order, together = "fragments", _BLOCK

    def row_nbytes(self, k: int) -> int:
        return self.in_rows.row_nbytes(k)

    def dequantize(self, rows: Array, k: int) -> Array:
        return self.in_rows.dequantize(self.reordered(rows, k, back=True), k)

    def drawn(self, rng: np.random.Generator, n: int, k: int) -> Array:
        return self.reordered(self.in_rows.drawn(rng, n, k), k)

    def reordered(self, rows: Array, k: int, *, back: bool = False) -> Array:
        """*rows*, (..., N, bytes), of K weights in order of k, in this format's; *back*: the other way."""
        *stack, n, nbytes = rows.shape
        found, whole = np.zeros_like(rows, order="C"), n // _BLOCK * _BLOCK
        turn = self._to_rows if back else self._to_blocks
        for some in (slice(0, whole), slice(whole, n)):
            if (part := rows[..., some, :]).size:
                blocks = part.reshape(*stack, -1, min(_BLOCK, part.shape[-2]), nbytes)
                found[..., some, :] = turn(blocks, k).reshape(part.shape)
        return found

    def _to_blocks(self, rows: Array, k: int) -> Array:
        """Of blocks, (..., rows, bytes), in order of k."""
        blocks, (packed, *pair) = np.zeros(rows.shape, np.uint8), self.in_rows.parts(rows, k)
        weights, pairs = self._views(blocks, k)
        turned = _turned(packed.reshape(*packed.shape[:-1], -1, 16), self.bits, 8)
        weights[...] = self._apart(np.moveaxis(turned.reshape(np.moveaxis(weights, -3, -4).shape), -4, -3))
        for n, part in enumerate(pair):
            pairs[..., n, :] = np.swapaxes(part.reshape(*part.shape[:-1], -1, pairs.shape[-1]), -2, -3)
        return blocks

    def _to_rows(self, blocks: Array, k: int) -> Array:
        rows, (weights, pairs) = np.zeros_like(blocks), self._views(blocks, k)
        packed, *pair = self.in_rows.parts(rows, k)
        turned = _turned(np.moveaxis(self._apart(weights), -3, -4), self.bits, 16 // self.bits)
        packed[...] = turned.reshape(packed.shape)
        for n, part in enumerate(pair):
            part[...] = np.swapaxes(pairs[..., n, :], -2, -3).reshape(part.shape)
        return rows

    def _views(self, blocks: Array, k: int) -> tuple[Array, Array]:
        """The weights of contiguous *blocks*, (..., rows, bytes), as (..., K / 128, rows, parts, 16), and
        their pairs, (..., groups, rows, 2, bytes).
        """
        *stack, rows, nbytes = blocks.shape
        memory = blocks.reshape(*stack, rows * nbytes)
        end, groups, size = rows * k * self.bits // 8, k // self.group_size, self.in_rows.scale_nbytes
        pairs = memory[..., end : end + rows * groups * 2 * size]
        weights = memory[..., :end].reshape(*stack, k // _SLICE, rows, self.bits, 16)
        return weights, pairs.reshape(*stack, groups, rows, 2, size)

    def _apart(self, weights: Array) -> Array:
        """*weights*, as of :meth:`_views`, with the parts of each of eight rows in another order: so they lie
        in different banks of local memory. Twice: as before.
        """
        row, part = np.ogrid[: weights.shape[-3], : self.bits]
        return weights[..., row, part ^ (row // 2 % 4 if self.bits == 4 else row % 8), :]


def _turned(parts: Array, bits: int, step: int) -> Array:
    """*parts*, (..., 16), with field a * step + b of each as field b * (fields / step) + a."""
    fields = parts if bits == 8 else np.stack((parts & 15, parts >> 4), -1)
    turned = fields.reshape(*parts.shape[:-1], -1, step).swapaxes(-1, -2)
    turned = turned.reshape(*parts.shape[:-1], -1)
    return turned if bits == 8 else turned[..., ::2] | turned[..., 1::2] << 4


def _of(form: Affine) -> Fragments:
    """The format with the same weights in this order."""
    how = form.header, form.dtype, form.align, form.defines
    name = f"{form.name}_fragments"
    return Fragments(name, "affine", form.bits, form.group_size, _SLICE, *how, in_rows=form)


FRAGMENTS = tuple(_of(form) for form in FORMATS if form.bits in (4, 8))
