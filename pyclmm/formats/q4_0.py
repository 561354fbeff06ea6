"""q4_0: 32 weights of 4 bits, and one scale: d (q - 8)."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, half_at, halves_of, inverse, nibbles


class Q4_0(BlockFormat):  # noqa: N801 - GGUF's name
    """float16 d | 16 bytes: weights 0 to 15 in the low halves, 16 to 31 in the high ones."""

    nbytes, halves, most = 18, (0,), 16
    has_codes = True

    def values(self, blocks: Array) -> Array:
        return np.asarray(
            half_at(blocks, 0) * (nibbles(blocks[:, 2:], 16).astype(np.float32) - np.float32(8))
        )

    def encoded(self, w: Array) -> Array:
        d = largest(w) / np.float32(-8)
        q = np.trunc(w * inverse(d) + np.float32(8.5)).astype(np.uint8).clip(0, 15)
        return np.concatenate([halves_of(d), q[:, :16] | q[:, 16:] << 4], axis=-1)


def largest(w: Array) -> Array:
    """Of each line the number that is largest in size, with its sign."""
    return np.take_along_axis(w, np.argmax(abs(w), axis=-1, keepdims=True), axis=-1)


FORMAT = block_format(Q4_0, bits=4, group_size=32, block=32)
