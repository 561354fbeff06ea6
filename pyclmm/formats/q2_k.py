"""q2_k: 256 weights of 2 bits in groups of 16, each with a scale and a least value of 4 bits."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, half_at, shifted


class Q2_K(BlockFormat):  # noqa: N801 - GGUF's name
    """16 bytes: scale in the low half, least value in the high one | 64 bytes | float16 d | float16 dmin."""

    nbytes, halves, most = 84, (80, 82), 3 * 15

    def values(self, blocks: Array) -> Array:
        scales = blocks[:, :16]
        d = half_at(blocks, 80) * (scales & 15).astype(np.float32)
        least = half_at(blocks, 82) * (scales >> 4).astype(np.float32)
        q = shifted(blocks[:, 16:80].reshape(-1, 2, 32), (0, 2, 4, 6), 2).reshape(-1, 16, 16)
        return np.asarray(d[:, :, None] * q.astype(np.float32) - least[:, :, None])


FORMAT = block_format(Q2_K, bits=2, group_size=16, block=256)
