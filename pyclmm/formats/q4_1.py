"""q4_1: 32 weights of 4 bits, a scale and a least value: d q + m."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, half_at, halves_of, inverse, nibbles


class Q4_1(BlockFormat):  # noqa: N801 - GGUF's name
    """float16 d | float16 m | 16 bytes: weights 0 to 15 in the low halves, 16 to 31 in the high ones."""

    nbytes, halves, most = 20, (0, 2), 16
    has_codes = True

    def values(self, blocks: Array) -> Array:
        return half_at(blocks, 0) * nibbles(blocks[:, 4:], 16).astype(np.float32) + half_at(blocks, 2)

    def encoded(self, w: Array) -> Array:
        least, most = w.min(axis=-1, keepdims=True), w.max(axis=-1, keepdims=True)
        d = (most - least) / np.float32(15)
        q = np.trunc((w - least) * inverse(d) + np.float32(0.5)).astype(np.uint8).clip(0, 15)
        return np.concatenate([halves_of(d), halves_of(least), q[:, :16] | q[:, 16:] << 4], axis=-1)


FORMAT = block_format(Q4_1, bits=4, group_size=32, block=32)
