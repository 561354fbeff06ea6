"""An image that loses its high frequencies and comes back: four matrix products that an eye can check."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from .digits import Digits
from .workloads import Array, Product, dct_basis, picture

KEPT = 4  # one of so many frequencies is kept, of the rows and of the columns
_ACROSS, _DOWN = 16, 10  # digits of the mosaic


def image(pictures: Digits | None) -> Array:
    """The drawn landscape, or a mosaic of the first digits: float32 from 0 to 1."""
    if pictures is None:
        return picture(480, 640).astype(np.float32)
    side = int(np.sqrt(pictures.pictures.shape[1]))
    tiles = pictures.pictures[: _ACROSS * _DOWN].reshape(_DOWN, _ACROSS, side, side)
    return np.ascontiguousarray(tiles.swapaxes(1, 2).reshape(_DOWN * side, _ACROSS * side))


def without_details(before: Array, product: Product) -> Array:
    """The image of its low frequencies: a cosine transform of rows and columns, cut, and its inverse."""
    down, across = (dct_basis(length).astype(np.float32) for length in before.shape)
    frequencies = product(product(down, before), across.T)
    rows, columns = (length // KEPT for length in before.shape)
    kept = np.ascontiguousarray(frequencies[:rows, :columns])
    return product(product(np.ascontiguousarray(down.T[:, :rows]), kept), across[:columns])


def write_png(path: Path, values: Array) -> None:
    """Write grey *values* from 0 to 1 as a PNG. Raises OSError."""
    grey = np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)
    lines = np.pad(grey, ((0, 0), (1, 0)))  # each line begins with the number of its filter: none

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(lines.tobytes()))
        + chunk(b"IEND", b"")
    )
