"""q8_0: 32 weights of 8 bits, and one scale: d q."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, half_at, halves_of, inverse


class Q8_0(BlockFormat):  # noqa: N801 - GGUF's name
    """float16 d | 32 signed bytes."""

    nbytes, halves, most = 34, (0,), 256
    has_codes = True

    def values(self, blocks: Array) -> Array:
        return half_at(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)

    def encoded(self, w: Array) -> Array:
        d = abs(w).max(axis=-1, keepdims=True) / np.float32(127)
        x = w * inverse(d)
        q = np.trunc(x + np.copysign(np.float32(0.5), x))  # halves go away from 0
        return np.concatenate([halves_of(d), q.astype(np.int8).view(np.uint8)], axis=-1)


FORMAT = block_format(Q8_0, bits=8, group_size=32, block=32)
