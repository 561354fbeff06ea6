"""Where a result is written by blocks: an array in memory, in a mapped file, or in a dataset.

All that can be known is checked when a Sink is made, before the first tile.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import uuid
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, ShapeError, StorageError
from ..opencl import mappings
from . import datasets
from .mapped import MappedFile, TooShort
from .sources import ArraySource, DatasetSource, MappedSource, Source
from .tiles import Index, Region

_MARK = "pyclmm-checkpoint"  # an attribute of an array in HDF5 or Zarr while a checkpoint has its tiles


class Sink:
    """A result that is written by blocks, by several threads at once.

    ``in_memory``: :meth:`view` works, and writes no file. ``persistent``: what is written survives the
    process. ``place``: where a persistent one is, for a checkpoint; None for any other.
    """

    in_memory = False
    persistent = False
    place: str | None = None

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype

    def view(self, region: Region) -> NDArray[Any]:
        """The block, without a copy. Only where ``in_memory``."""
        raise NotImplementedError

    def write(self, block: NDArray[Any], region: Region) -> None:
        """Write a block, cast by the rule "same_kind". Raises StorageError."""
        raise NotImplementedError

    def source(self) -> Source:
        """What was written, to be read. Only where ``persistent``."""
        raise NotImplementedError

    def flush(self) -> None:
        """Return when what was written is on the disk. Raises StorageError."""

    @property
    def mark(self) -> str | None:
        """What tells this array from another at its place; None if it has no mark. Raises StorageError."""
        return None

    def set_mark(self) -> str | None:
        """Give the array a mark of its own, and return when array and mark are on the disk; its mark."""
        return None

    def remove_mark(self) -> None:
        """Remove it, where it was written into the file."""


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

    def view(self, region: Region) -> NDArray[Any]:
        return self.x[region.where]

    def write(self, block: NDArray[Any], region: Region) -> None:
        np.copyto(self.x[region.where], block, casting="same_kind")


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

    def write(self, block: NDArray[Any], region: Region) -> None:
        target = self.x[region.where]
        if not target.size:
            return
        try:
            self.file.check(target)
        except (TooShort, OSError) as error:
            raise StorageError(f"out: {region} of {self.file.path} could not be written: {error}") from error
        np.copyto(target, block, casting="same_kind")

    def source(self) -> Source:
        return MappedSource("out", self.x, True, self.file)

    @property
    def mark(self) -> str | None:
        """The number of the file's inode. That of its device changes when the file system is mounted anew."""
        with datasets.failing_as("out", f"the status of {self.file.path}"):
            return None if self.file.path is None else f"inode {self.file.path.stat().st_ino}"

    def set_mark(self) -> str | None:
        with datasets.failing_as("out", f"the new file {self.file.path}", "flushed"):
            self.file.settle()
        return self.mark

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
        self._written: list[Index] = []  # since the last flush
        self._noting = threading.Lock()
        self.persistent = datasets.is_persistent(x)
        self.place = datasets.where(x) if self.persistent else None
        super().__init__(shape, dtype)

    def write(self, block: NDArray[Any], region: Region) -> None:
        if not block.size:
            return
        where = region.where
        native = self.dtype.newbyteorder("=")
        cast = np.ascontiguousarray(block.astype(native, casting="same_kind", copy=False))
        with (
            datasets.failing_as("out", str(region), "written"),
            self._alone(where),
            datasets.lock_for(self.x),
        ):
            if not datasets.is_hdf5(self.x):
                self.x[where] = cast
            elif self.x:
                self.x.write_direct(cast, dest_sel=where)
            else:
                raise StorageError(f"out: {region} could not be written: the HDF5 file is closed")
        with self._noting:
            self._written.append(where)

    def _alone(self, where: Index) -> contextlib.AbstractContextManager[Any]:
        """A lock, unless the block has whole chunks only."""
        if self._chunks is None:
            return self._lock
        places = zip(where, self._chunks, self.shape, strict=True)
        whole = all(_whole(at, chunk, length) for at, chunk, length in places)
        return contextlib.nullcontext() if whole else self._lock

    def source(self) -> Source:
        return DatasetSource("out", self.x, True)

    @property
    def mark(self) -> str | None:
        with datasets.failing_as("out", f"its attribute {_MARK}"), datasets.lock_for(self.x):
            return str(self.x.attrs[_MARK]) if _MARK in self.x.attrs else None

    def set_mark(self) -> str | None:
        if not self.persistent:
            return None
        with datasets.failing_as("out", f"its attribute {_MARK}", "written"), datasets.lock_for(self.x):
            self.x.attrs[_MARK] = uuid.uuid4().hex
        self.flush()
        return self.mark

    def remove_mark(self) -> None:
        if self.persistent and self.mark is not None:
            with datasets.failing_as("out", f"its attribute {_MARK}", "removed"), datasets.lock_for(self.x):
                del self.x.attrs[_MARK]

    def flush(self) -> None:
        with self._noting:
            written, self._written = self._written, []
        try:
            with datasets.failing_as("out", "what was written", "flushed"):
                datasets.flush(self.x, written)
        except StorageError:
            with self._noting:
                self._written += written
            raise


def _whole(at: slice | int, chunk: int, length: int) -> bool:
    start, stop = datasets.span(at)
    return start % chunk == 0 and (stop % chunk == 0 or stop == length)


def sink(x: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Sink:
    """``out``, which takes a product of this shape and dtype. A memmap's file gets its blocks on the disk.

    Raises ArgumentError if it is read-only, ShapeError, DTypeError, and StorageError if it is closed, too
    short, or the disk is full.
    """
    if isinstance(x, np.ndarray):
        check(x.shape, x.dtype, shape, dtype)
        owner = mappings.map_of(x)
        return ArraySink(x) if owner is None else MappedSink(x, MappedFile(owner))
    check(*datasets.layout("out", x), shape, dtype)
    return DatasetSink(x)


def overlaps(a: Source, out: Sink) -> bool:
    """Whether an operand and the result may share elements. Two names of one file are one file."""
    if isinstance(a, ArraySource) and isinstance(out, ArraySink):
        return _share(a.x, out.x) or mappings.shares_file(a.x, out.x)
    if isinstance(a, DatasetSource) and isinstance(out, DatasetSink):
        return datasets.overlap(a.x, out.x)
    stored, x = (a.x, out.x) if isinstance(a, DatasetSource) else (out.x, a.x)  # type: ignore[attr-defined]
    if datasets.is_zarr(stored):
        place = mappings.place_of(x)
        return place is not None and datasets.has(stored, place.path)
    if not datasets.is_hdf5(stored):
        return False
    others = (path for path, _ in itertools.islice(datasets.hdf5_reads(stored), 1, None))
    return datasets.shows(stored, mappings.span_in(x, stored.file.filename)) or any(
        mappings.span_in(x, str(path)) is not None for path in others
    )


def _share(x: NDArray[Any], y: NDArray[Any]) -> bool:
    try:
        return np.shares_memory(x, y, max_work=1000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
