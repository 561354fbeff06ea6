"""mxfp4 as GGUF has it: 32 numbers of E2M1 and one power of two, in blocks of 17 bytes."""

from __future__ import annotations

import numpy as np

from .base import Array, BlockFormat, block_format, nibbles
from .mx import E2M1, code_of_power, signed


class MXFP4_GGUF(BlockFormat):  # noqa: N801 - GGUF's name
    """A byte: E8M0 | 16 bytes: weights 0 to 15 in the low halves, 16 to 31 in the high ones."""

    nbytes, halves, most = 17, (), 1

    def values(self, blocks: Array) -> Array:
        doubled = 2 * signed(E2M1, nibbles(blocks[:, 1:], 16)) + np.float32(0)  # GGUF has one zero
        return _half_power(blocks[:, :1]) * doubled

    def encoded(self, w: Array) -> Array:
        e = code_of_power(abs(w).max(axis=-1, keepdims=True), 2)
        # The first of the nearest: GGUF's own order of the codes
        away = abs(_half_power(e)[:, :, None] * (2 * signed(E2M1, np.arange(16))) - w[:, :, None])
        q = np.argmin(away, axis=-1).astype(np.uint8)
        return np.concatenate([e, q[:, :16] | q[:, 16:] << 4], axis=-1)

    def drawn(self, rng: np.random.Generator, n: int, k: int) -> Array:
        rows = super().drawn(rng, n, k)
        rows.reshape(-1, self.nbytes)[:, 0] = rng.integers(120, 126, n * k // self.block)
        return rows


def _half_power(codes: Array) -> Array:
    """2^(code - 128), of which 255 is one, too."""
    return np.ldexp(np.float32(1), codes.astype(np.int32) - 128).astype(np.float32)


FORMAT = block_format(MXFP4_GGUF, bits=4, group_size=32, block=32)
