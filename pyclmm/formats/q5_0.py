"""q5_0: 32 weights of 5 bits, and one scale: d (q - 16)."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, half_at, halves_of, inverse, nibbles
from .q4_0 import largest


class Q5_0(BlockFormat):  # noqa: N801 - GGUF's name
    """float16 d | 4 bytes: the fifth bit of each weight | 16 bytes as of q4_0."""

    nbytes, halves, most = 22, (0,), 32

    def values(self, blocks: Array) -> Array:
        fifth = np.unpackbits(blocks[:, 2:6], axis=-1, bitorder="little")
        q = (nibbles(blocks[:, 6:], 16) | fifth << 4).astype(np.float32)
        return np.asarray(half_at(blocks, 0) * (q - np.float32(16)))

    def encoded(self, w: Array) -> Array:
        d = largest(w) / np.float32(-16)
        q = np.trunc(w * inverse(d) + np.float32(16.5)).astype(np.uint8).clip(0, 31)
        fifth, low = np.packbits(q >> 4, axis=-1, bitorder="little"), q & 15
        return np.concatenate([halves_of(d), fifth, low[:, :16] | low[:, 16:] << 4], axis=-1)


FORMAT = block_format(Q5_0, bits=5, group_size=32, block=32)
