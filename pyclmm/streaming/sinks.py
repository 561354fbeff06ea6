"""Where a result is written by blocks: an array in memory, in a mapped file, or in a dataset."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, ShapeError, StorageError
from . import datasets
from .datasets import Index
from .mapped import MappedFile, TooShort
from .sources import part_of


class Sink:
    """A result that is written by blocks, by several threads at once.

    ``in_memory``: :meth:`view` works, and writes no file. ``persistent``: what is written survives the
    process. ``place``: what tells a persistent one from another, for a checkpoint; None for any other.
    """

    name = "out"
    in_memory = False
    persistent = False
    place: str | None = None

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype

    def view(self, index: Index, rows: slice, columns: slice) -> NDArray[Any]:
        """The block, without a copy. Raises ArgumentError unless ``in_memory``."""
        raise ArgumentError("out is not in memory; use write")

    def write(self, block: NDArray[Any], index: Index, rows: slice, columns: slice) -> None:
        """Write a block, cast by the rule "same_kind". Raises StorageError."""
        raise NotImplementedError

    def flush(self) -> None:
        """Return when what was written is with the system or on the disk. Raises StorageError."""

    def close(self) -> None:
        """Flush. What the caller has opened stays open."""
        self.flush()

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check(
    given: tuple[int, ...], dtype: np.dtype[Any], shape: tuple[int, ...], computed: np.dtype[Any]
) -> None:
    """Raise ShapeError or DTypeError unless a product fits into ``out``."""
    if given != tuple(shape):
        raise ShapeError(f"out has shape {given}; the product has shape {tuple(shape)}")
    if not np.can_cast(computed, dtype, "same_kind"):
        raise DTypeError(f"out has dtype {dtype}, to which {computed} is not cast by the rule 'same_kind'")


class ArraySink(Sink):
    """A NumPy array in plain memory."""

    in_memory = True

    def __init__(self, x: NDArray[Any]) -> None:
        if not x.flags.writeable:
            raise ArgumentError("out is read-only; pass an array that can be written")
        self.x = np.asarray(x)
        super().__init__(x.shape, x.dtype)

    def view(self, index: Index, rows: slice, columns: slice) -> NDArray[Any]:
        return self.x[(*index, rows, columns)]

    def write(self, block: NDArray[Any], index: Index, rows: slice, columns: slice) -> None:
        np.copyto(self.x[(*index, rows, columns)], block, casting="same_kind")


class MappedSink(ArraySink):
    """A view of a memory map of mode "r+" or "w+", or of private pages ("c"), which no file gets."""

    in_memory = False

    def __init__(self, x: NDArray[Any], file: MappedFile) -> None:
        if file.mode == "r":
            raise ArgumentError("out is a memmap of mode 'r', which is read-only; open it with mode 'r+'")
        super().__init__(x)
        self.file = file
        self.persistent = file.mode in ("r+", "w+") and file.has_name
        if self.persistent:
            first = file.place(self.x)[0] if x.size else 0
            self.place = f"{file.path}, byte {first}, strides {x.strides}"
        with datasets.failing_as("out", f"the {x.nbytes} bytes of {file.path}", "reserved"):
            file.check(self.x)
            if file.mode != "c":
                file.reserve(self.x)

    def view(self, index: Index, rows: slice, columns: slice) -> NDArray[Any]:
        raise ArgumentError("out is in a file; use write")

    def write(self, block: NDArray[Any], index: Index, rows: slice, columns: slice) -> None:
        target = self.x[(*index, rows, columns)]
        if not target.size:
            return
        try:
            self.file.check(target)
        except (TooShort, OSError) as error:
            part = part_of(index, rows, columns)
            raise StorageError(f"out: {part} of {self.file.path} could not be written: {error}") from error
        np.copyto(target, block, casting="same_kind")
        self.file.wrote(target)

    def flush(self) -> None:
        if self.file.mode == "c":
            return
        with datasets.failing_as("out", f"what was written of {self.file.path}", "flushed"):
            self.file.flush()


class DatasetSink(Sink):
    """What is written by slices.

    Two blocks that share a chunk are not written at once, because each write reads, changes and writes the
    chunk. A kill in the middle of a write can damage an HDF5 file itself.
    """

    def __init__(self, x: Any) -> None:
        shape, dtype = datasets.layout("out", x)
        if datasets.is_read_only(x):
            raise ArgumentError("out is read-only; open it for writing, or pass an object with __setitem__")
        self.x, self._lock, self._chunks = x, threading.Lock(), datasets.chunks(x)
        self.persistent = datasets.is_persistent(x)
        self.place = datasets.where(x) if self.persistent else None
        super().__init__(shape, dtype)

    def write(self, block: NDArray[Any], index: Index, rows: slice, columns: slice) -> None:
        if not block.size:
            return
        part, where = part_of(index, rows, columns), (*index, rows, columns)
        native = self.dtype.newbyteorder("=")
        cast = np.ascontiguousarray(block.astype(native, casting="same_kind", copy=False))
        with datasets.failing_as("out", part, "written"), self._alone(where), datasets.lock_for(self.x):
            if not datasets.is_hdf5(self.x):
                self.x[where] = cast
                return
            if not self.x:
                raise StorageError(f"out: {part} could not be written: the HDF5 file is closed")
            self.x.write_direct(cast, dest_sel=where)

    def _alone(self, where: Index) -> contextlib.AbstractContextManager[Any]:
        """A lock, unless the block has whole chunks only."""
        if self._chunks is None:
            return self._lock
        places = zip(where, self._chunks, self.shape, strict=True)
        whole = all(_whole(at, chunk, length) for at, chunk, length in places)
        return contextlib.nullcontext() if whole else self._lock

    def flush(self) -> None:
        with datasets.failing_as("out", "what was written", "flushed"):
            datasets.flush(self.x)


def _whole(at: slice | int, chunk: int, length: int) -> bool:
    start, stop = (at.start, at.stop) if isinstance(at, slice) else (at, at + 1)
    return start % chunk == 0 and (stop % chunk == 0 or stop == length)
