"""q6_k: 256 weights of 6 bits in groups of 16, each with a scale of a signed byte: d scale (q - 32)."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, half_at, nibbles, shifted


class Q6_K(BlockFormat):  # noqa: N801 - GGUF's name
    """128 bytes: the low four bits | 64 bytes: the high two | 16 signed bytes: scales | float16 d."""

    nbytes, halves, most = 210, (208,), 32 * 127

    def values(self, blocks: Array) -> Array:
        scale = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
        high = shifted(blocks[:, 128:192].reshape(-1, 2, 32), (0, 2, 4, 6), 2).reshape(-1, 256)
        q = (nibbles(blocks[:, :128], 64) | high << 4).astype(np.float32) - np.float32(32)
        return np.asarray((half_at(blocks, 208) * scale)[:, :, None] * q.reshape(-1, 16, 16))


FORMAT = block_format(Q6_K, bits=6, group_size=16, block=256)
