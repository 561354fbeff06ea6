"""q3_k: 256 weights of 3 bits in groups of 16, each with a scale of 6 bits: d (scale - 32) (q - 4)."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, half_at, shifted


class Q3_K(BlockFormat):  # noqa: N801 - GGUF's name
    """32 bytes: the third bits, one of each run of 32 | 64 bytes: two bits | 12 bytes: scales | float16 d."""

    nbytes, halves, most = 110, (108,), 4 * 32

    def values(self, blocks: Array) -> Array:
        low = shifted(blocks[:, 96:104].reshape(-1, 1, 8), (0, 4), 4).reshape(-1, 16)
        high = shifted(blocks[:, 104:108].reshape(-1, 1, 4), (0, 2, 4, 6), 2).reshape(-1, 16)
        d = half_at(blocks, 108) * ((low | high << 4).astype(np.float32) - np.float32(32))
        two = shifted(blocks[:, 32:96].reshape(-1, 2, 32), (0, 2, 4, 6), 2).reshape(-1, 256)
        third = shifted(blocks[:, :32].reshape(-1, 1, 32), tuple(range(8)), 1).reshape(-1, 256)
        q = (two | third << 2).astype(np.float32) - np.float32(4)
        return np.asarray(d[:, :, None] * q.reshape(-1, 16, 16))


FORMAT = block_format(Q3_K, bits=3, group_size=16, block=256)
