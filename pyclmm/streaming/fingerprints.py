"""What tells the content of an operand from another, without reading all of it."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np

from .datasets import where
from .sources import DatasetSource, MappedSource, Source

_TOTAL = 1 << 20  # bytes that are read of an operand
_PIECE = 1 << 14  # bytes of one piece


def fingerprint(source: Source) -> dict[str, Any]:
    """Shape, dtype, for a mapped file its path, length and time of change, and a digest of about 1 MiB.

    The digest is BLAKE2 of evenly spread pieces, all of an operand up to 1 MiB. It cannot see a change
    between the pieces of a larger array in memory, HDF5 or Zarr. The time of an HDF5 file is not taken,
    since ``out`` may lie in the same file. Raises StorageError.
    """
    found: dict[str, Any] = {"shape": list(source.shape), "dtype": source.dtype.str + source.dtype.name}
    if isinstance(source, MappedSource) and source.file.path is not None and source.file.path.is_file():
        status = os.stat(source.file.path)
        place = source.file.place(source.x)[0] if source.x.size else 0
        found |= {
            "path": str(source.file.path),
            "byte": place,
            "size": status.st_size,
            "mtime": status.st_mtime_ns,
        }
    elif isinstance(source, DatasetSource) and where(source.x) is not None:
        found["path"] = where(source.x)
    return found | {"digest": _digest(source)}


def _digest(source: Source) -> str:
    """The digest of pieces of the matrices' rows, or of their columns where these lie together."""
    state = hashlib.blake2b(digest_size=16)
    if source.nbytes == 0:
        return state.hexdigest()
    *stack, rows, columns = source.shape
    if source.turned:
        rows, columns = columns, rows
    width = min(columns, max(1, _PIECE // source.dtype.itemsize))
    height = min(rows, max(1, _PIECE // (width * source.dtype.itemsize)))
    down, across, count = -(-rows // height), -(-columns // width), int(np.prod(stack, dtype=object))
    every = count * down * across
    wanted = (
        min(every, _TOTAL // (height * width * source.dtype.itemsize), 4096)
        if source.nbytes > _TOTAL
        else every
    )
    for i in range(wanted):
        place = i * (every - 1) // max(1, wanted - 1)
        z, place = divmod(place, down * across)
        row, column = place // across * height, place % across * width
        at = tuple(int(j) for j in np.unravel_index(z, stack)) if stack else ()
        spans = slice(row, min(rows, row + height)), slice(column, min(columns, column + width))
        target = np.empty([span.stop - span.start for span in spans], source.dtype.newbyteorder("="))
        source.read(target, at, *(reversed(spans) if source.turned else spans))
        state.update(target.tobytes())
    return state.hexdigest()
