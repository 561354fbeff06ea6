"""Digests of what lies in arrays and files: of operands, and of the finished tiles in ``out``.

Up to 1 MiB every byte is hashed. Of more, each piece of 32 MiB (8 of a dataset) gives BLAKE2 the sums of its
rows, as whole words, in which each byte takes part, at the rate of memory; and a sample, 64 bytes of every 4
KiB of each row, which move on by 64 bytes from row to row::

    row 0  [#-------|#-------|       So a change of one element is always noticed (a sum differs). A change of
    row 1  [-#------|-#------|       more is missed only if it leaves every sum and the whole sample as they
    row 2  [--#-----|--#-----|       were. Rows that are exchanged are noticed by the sample.

Rows are lines of memory (columns, where those lie together); shorter ones than 4 KiB are joined.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..opencl.staging import PIECE, aside
from .datasets import where
from .job import pieces
from .storage import DatasetStorage, MappedStorage, Storage
from .tiles import Region

_WHOLE = 1 << 20  # bytes of which each is hashed
_PIECE = 1 << 25  # bytes that are read at once
_LINE, _RUN = 4096, 64  # bytes of a row of which so many are in the sample
_MOST = 1 << 30  # bytes of an operand that are read
_THREADS = min(8, os.cpu_count() or 1)


def fingerprint(source: Storage, beside_out: bool = False) -> dict[str, Any]:
    """Shape, dtype, digest; for a mapped file its path, length and time of change, for a dataset its path.

    What was written to a mapped file, by whatever map, is flushed first, so that its time tells a later
    change. Length and time of a file that has ``out`` too (*beside_out*) change with each tile: there every
    byte of the operand is hashed. The time of an HDF5 file is not taken of datasets, since ``out`` may lie in
    the same file. Of an operand of n GiB each piece of 32 MiB gives 1/n of its columns, in turn. Raises
    StorageError.
    """
    found: dict[str, Any] = {"shape": list(source.shape), "dtype": source.dtype.str + source.dtype.name}
    if isinstance(source, MappedStorage) and source.file.path is not None and source.file.path.is_file():
        with suppress(OSError):  # some systems flush no file that is open for reading
            source.file.settle()
        status = os.stat(source.file.path)
        place = source.file.place(source.x)[0] if source.x.size else 0
        found |= {"path": os.path.realpath(source.file.path), "byte": place}
        if source.x.size and not beside_out:  # what has no element cannot change
            found |= {"size": status.st_size, "mtime": status.st_mtime_ns}
    elif isinstance(source, DatasetStorage) and where(source.x) is not None:
        found["path"] = where(source.x)
    share = 1 if beside_out else -(-source.nbytes // _MOST)
    parts, is_whole = _matrices(source.shape), beside_out or source.nbytes <= _WHOLE
    return found | {"digest": _digest(source, parts, source.nbytes, share, is_whole)}


def tile_digest(source: Storage, region: Region) -> str:
    """The digest of a part of ``out``. Raises StorageError."""
    if not isinstance(source, DatasetStorage):
        nbytes = region.elements * source.dtype.itemsize
        return _digest(source, [region], nbytes, 1, nbytes <= _WHOLE)
    tile = WrittenTile(source.dtype, region)
    for piece in tile.pieces(region):
        tile.add(piece, source.block(piece))
    return tile.digest()


class WrittenTile:
    """:func:`tile_digest` of a dataset, by the blocks written to it: to read them back takes long."""

    def __init__(self, dtype: np.dtype[Any], region: Region) -> None:
        self._dtype, self._nbytes = dtype.newbyteorder("="), region.elements * dtype.itemsize
        self._found: dict[tuple[int, ...], tuple[Region, bytes]] = {}

    def pieces(self, region: Region) -> Iterator[Region]:
        """*region* as a lane that copies from a device cuts it; such a piece is not cut again."""
        return (piece for piece, _ in pieces(region, False, self._dtype.itemsize, PIECE))

    def add(self, region: Region, block: NDArray[Any]) -> None:
        """Note a block of the tile, in any order. Several threads may do so at once."""
        for piece in self.pieces(region):
            self._found[piece.first] = piece, self._hash(piece, block[piece.within(region)])

    def is_in(self, source: Storage) -> bool:
        """Whether the first piece reads as it was written. Raises StorageError."""
        piece, found = self._found[min(self._found)]
        return self._hash(piece, source.block(piece)) == found

    def digest(self) -> str:
        """The digest of the tile, of which each block was added."""
        state = hashlib.blake2b(digest_size=16)
        for _, (_, found) in sorted(self._found.items()):
            state.update(found)
        return state.hexdigest()

    def _hash(self, piece: Region, block: NDArray[Any]) -> bytes:
        stored = block.astype(self._dtype, casting="same_kind", copy=False)
        return _every_byte(stored) if self._nbytes <= _WHOLE else _sampled(stored, piece.rows.start)


def _matrices(shape: tuple[int, ...]) -> Iterator[Region]:
    """All of an array, by rows of its stack."""
    *stack, rows, columns = shape
    for at in np.ndindex(*stack[:-1]):
        index = (*at, slice(0, stack[-1])) if stack else ()
        yield Region(index, slice(0, rows), slice(0, columns))


def _digest(source: Storage, parts: Iterable[Region], nbytes: int, share: int, is_whole: bool) -> str:
    """The digest of *parts*, *nbytes* in all, of which one byte of *share* is looked at; *is_whole*: and each
    of these is hashed."""
    state = hashlib.blake2b(digest_size=16)
    if nbytes:
        itemsize, step, turned = source.dtype.itemsize, source.row_step(), source.turned
        cut = (p for part in parts for p, _ in pieces(part, turned, itemsize, _PIECE, step))
        taken = cut if share == 1 else _shares(cut, turned, share)

        def of(piece: Region) -> bytes:
            block = source.block(piece)
            if is_whole:
                return _every_byte(block)
            return _sampled(block, (piece.columns if turned else piece.rows).start)

        with ThreadPoolExecutor(_THREADS) if nbytes > _PIECE else nullcontext() as pool:
            for found in map(of, taken) if pool is None else aside(lambda: pool.map(of, taken)):
                state.update(found)
    return state.hexdigest()


def _shares(cut: Iterable[Region], turned: bool, share: int) -> Iterator[Region]:
    """Of each piece one of *share* parts along its rows, which follow one another from piece to piece."""
    axis = -2 if turned else -1
    for number, piece in enumerate(cut):
        total = piece.shape[axis]
        length = -(-total // share)
        start = number % share * length
        stop = min(start + length, total)
        if start < stop:
            yield piece.cut(axis, start, stop)


def _every_byte(block: NDArray[Any]) -> bytes:
    return _hashed(np.ascontiguousarray(block).reshape(-1).view(np.uint8))


def _sampled(block: NDArray[Any], first: int) -> bytes:
    """The sums and the sample of a block, whose first row is number *first* of the array."""
    if block.shape[-1] * block.itemsize >= _LINE:
        if block.strides[-1] != block.itemsize:
            block = np.ascontiguousarray(block)
        return _hashed(*_sample(block.reshape(-1, block.shape[-1]).view(np.uint8), first))
    flat = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
    end = flat.size // _LINE * _LINE
    return _hashed(*_sample(flat[:end].reshape(-1, _LINE), 0), flat[end:])


def _sample(lines: NDArray[np.uint8], first: int) -> Iterator[NDArray[Any]]:
    """The sums of *lines* of bytes, and the sample of them; the first one has the number *first*."""
    length, period = lines.shape[1], _LINE // _RUN
    word = next(f"u{size}" for size in (8, 4, 2, 1) if length % size == 0)
    yield np.add.reduce(lines.view(word), axis=0, dtype=word)
    runs = lines[:, : length // _RUN * _RUN].view(f"V{_RUN}")
    for k in range(period):
        yield np.ascontiguousarray(runs[(k - first) % period :: period, k::period]).view(np.uint8)


def _hashed(*parts: NDArray[Any]) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part.data)
    return state.digest()
