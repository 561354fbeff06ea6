"""q4_k: 256 weights of 4 bits in groups of 32, each with a scale and a least value of 6 bits."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, half_at, nibbles


class Q4_K(BlockFormat):  # noqa: N801 - GGUF's name
    """float16 d | float16 dmin | 12 bytes: scales and least values | 128 bytes: pairs of runs of 32."""

    nbytes, halves, most = 144, (0, 2), 15 * 63
    has_codes = True

    def values(self, blocks: Array) -> Array:
        d, least = scales(blocks)
        q = nibbles(blocks[:, 16:], 32).reshape(-1, 8, 32)
        return d * q.astype(np.float32) - least


def scales(blocks: Array) -> tuple[Array, Array]:
    """The scales and the least values, (count, 8, 1), of the 12 bytes behind d and dmin.

    The first four of each are in the low 6 bits of bytes 0 to 7; the others have 4 bits in bytes 8 to 11 and
    two in the high bits of bytes 0 to 7.
    """
    first, second, third = (blocks[:, at : at + 4] for at in (4, 8, 12))
    scale = np.concatenate([first & 63, (third & 15) | (first >> 2 & 48)], axis=-1)
    least = np.concatenate([second & 63, third >> 4 | (second >> 2 & 48)], axis=-1)
    d, dmin = half_at(blocks, 0), half_at(blocks, 2)
    return (d * scale.astype(np.float32))[:, :, None], (dmin * least.astype(np.float32))[:, :, None]


FORMAT = block_format(Q4_K, bits=4, group_size=32, block=256)
