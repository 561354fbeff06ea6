"""q5_k: 256 weights of 5 bits in groups of 32, each with a scale and a least value of 6 bits."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, nibbles, shifted
from .q4_k import scales


class Q5_K(BlockFormat):  # noqa: N801 - GGUF's name
    """As q4_k, with 32 bytes before the 128: the fifth bits, one of each run of 32."""

    nbytes, halves, most = 176, (0, 2), 31 * 63

    def values(self, blocks: Array) -> Array:
        d, least = scales(blocks)
        fifth = shifted(blocks[:, 16:48].reshape(-1, 1, 32), tuple(range(8)), 1).reshape(-1, 256)
        q = (nibbles(blocks[:, 48:], 32) | fifth << 4).reshape(-1, 8, 32)
        return np.asarray(d * q.astype(np.float32) - least)


FORMAT = block_format(Q5_K, bits=5, group_size=32, block=256)
