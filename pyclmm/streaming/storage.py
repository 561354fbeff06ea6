"""Arrays that are read and written by blocks: in memory, in a mapped file, or in a dataset.

All that can be known is checked when an operand or ``out`` is opened, before the first tile.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import uuid
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, ShapeError, StorageError
from ..opencl import mappings
from . import datasets
from .mapped_file import MappedFile
from .tiles import Index, Region

# Bytes; a shorter piece is copied from the map, where a system call would take longer.
_WORTH_A_READ = 1 << 16
_MARK = "pyclmm-checkpoint"  # an attribute of an array in HDF5 or Zarr while a checkpoint has its tiles


class Storage:
    """An operand or a result, which several threads read or write by blocks at once.

    ``shape`` has two axes or more; ``nbytes`` counts its elements. ``in_memory``: :meth:`view` works, and
    touches no file. ``reach``: bytes from the first element in memory to the last, gaps included, else 0.
    ``turned``: :meth:`read` fills the transpose of each matrix, because columns lie together. ``trans``: how
    the product takes each matrix, "N", "T" or "C".

    Of a result, ``persistent``: what is written survives the process. ``place``: where it is then, for a
    checkpoint; None for any other.
    """

    in_memory = False
    turned = False
    reach = 0
    trans = "N"
    persistent = False
    place: str | None = None

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype
        self.nbytes = math.prod(shape) * dtype.itemsize

    @property
    def native(self) -> np.dtype[Any]:
        """The dtype of what :meth:`read` fills."""
        return self.dtype.newbyteorder("=")

    def view(self, region: Region) -> NDArray[Any]:
        """The block, without a copy. Only where ``in_memory``."""
        raise NotImplementedError

    def read(self, target: NDArray[Any], region: Region) -> None:
        """Copy a block into *target*, C-contiguous and in native byte order. Raises StorageError. *target*
        has the block's shape, or that of its transpose if ``turned``.
        """
        raise NotImplementedError

    def block(self, region: Region) -> NDArray[Any]:
        """The block as :meth:`read` fills it, a view where there is one. Raises StorageError."""
        target = np.empty(region.shape, self.native)
        self.read(target, region)
        return target

    def row_step(self) -> int:
        """The rows (columns if ``turned``) of which a piece should have a multiple."""
        return 1

    def open_to_write(self) -> None:
        """Check that blocks can be written. Raises ArgumentError and StorageError."""

    def write(self, block: NDArray[Any], region: Region) -> None:
        """Write a block, cast by the rule "same_kind". Raises StorageError."""
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


class ArrayStorage(Storage):
    """A NumPy array in plain memory."""

    in_memory = True

    def __init__(self, name: str, x: NDArray[Any], as_row: bool) -> None:
        x = np.asarray(x)
        self.x = x if x.ndim > 1 else x[None, :] if as_row else x[:, None]
        super().__init__(name, self.x.shape, self.x.dtype)
        row, column = (abs(stride) for stride in self.x.strides[-2:])
        self.turned = min(self.x.shape[-2:]) > 1 and 0 < row < column
        if self.in_memory:
            self.reach = mappings.extent(self.x)

    def view(self, region: Region) -> NDArray[Any]:
        return self.x[region.where]

    def block(self, region: Region) -> NDArray[Any]:
        block = self.x[region.where]
        return block.swapaxes(-1, -2) if self.turned else block

    def read(self, target: NDArray[Any], region: Region) -> None:
        np.copyto(target, self.block(region))

    def open_to_write(self) -> None:
        if not self.x.flags.writeable:
            raise ArgumentError(f"{self.name} is read-only; pass an array that can be written")

    def write(self, block: NDArray[Any], region: Region) -> None:
        np.copyto(self.x[region.where], block, casting="same_kind")


class MappedStorage(ArrayStorage):
    """A view of a memory map, also private ("c"). The file's length is compared before each access."""

    in_memory = False

    def __init__(self, name: str, x: NDArray[Any], as_row: bool, file: MappedFile) -> None:
        super().__init__(name, x, as_row)
        self.file = file
        with self._failing("the whole array", "reached"):
            file.check(self.x)

    def _failing(self, part: object, verb: str = "read") -> contextlib.AbstractContextManager[None]:
        return datasets.failing_as(self.name, f"{part} of {self.file.path}", verb)

    def block(self, region: Region) -> NDArray[Any]:
        block = super().block(region)
        with self._failing(region):
            self.file.check(block)
        return block

    def read(self, target: NDArray[Any], region: Region) -> None:
        block = self.block(region)
        with self._failing(region):
            can_read = block.size and block.dtype.isnative and self.file.can_read()
            if not (can_read and self._read_rows(target, block)):
                np.copyto(target, block)

    def _read_rows(self, target: NDArray[Any], block: NDArray[Any]) -> bool:
        """Read *block* by the longest runs of bytes that it has in the file. False if they are short."""
        runs = (axes for axes in range(block.ndim) if block[(0,) * axes].flags.c_contiguous)
        axes = next(runs, None)
        if axes is None or (axes and block[(0,) * axes].nbytes < _WORTH_A_READ):
            return False
        for place in itertools.product(*map(range, block.shape[:axes])):
            self.file.read(target[place], block[place])
        return True

    def open_to_write(self) -> None:
        """The file gets its blocks on the disk."""
        file = self.file
        if file.mode == "r":
            raise ArgumentError("out is a memmap of mode 'r', which is read-only; open it with mode 'r+'")
        super().open_to_write()
        self.persistent = file.mode in ("r+", "w+") and file.has_name
        if self.persistent:
            first = file.place(self.x)[0] if self.x.size else 0
            dtype = self.dtype.str + self.dtype.name  # bfloat16 has a name only
            path = os.path.realpath(str(file.path))
            self.place = f"{path}, byte {first}, {dtype}, strides {self.x.strides}"
        if file.mode != "c":
            with self._failing(f"the {self.x.nbytes} bytes", "reserved"):
                file.reserve(self.x)

    def write(self, block: NDArray[Any], region: Region) -> None:
        with self._failing(region, "written"):
            self.file.check(self.x[region.where])
        super().write(block, region)

    @property
    def mark(self) -> str | None:
        """The number of the file's inode. That of its device changes when the file system is mounted anew."""
        with self._failing("the status"):
            return None if self.file.path is None else f"inode {self.file.path.stat().st_ino}"

    def set_mark(self) -> str | None:
        with self._failing("the new file", "flushed"):
            self.file.settle()
        return self.mark

    def flush(self) -> None:
        if self.file.mode != "c":
            with self._failing("what was written", "flushed"):
                self.file.flush()


class DatasetStorage(Storage):
    """What is read and written by slices. Two blocks of ``out`` that share a chunk are not written at once,
    because each write reads, changes and writes the chunk; nor is one read while the other is written,
    because Zarr reads a shard part by part. A kill in the middle of a write can damage an HDF5 file itself.
    """

    def __init__(self, name: str, x: Any, as_row: bool, of_run: datasets.Lock) -> None:
        shape, dtype = datasets.layout(name, x)
        datasets.check_lock(name, x)
        self.x, self._chunks = x, datasets.chunks(x)
        self._one, self._as_row = len(shape) == 1, as_row
        self._serial = datasets.lock_for(x, of_run)
        self._lock, self._noting = threading.Lock(), threading.Lock()
        self._written: list[Index] = []  # since the last flush
        self._is_out = False
        with datasets.failing_as(name, "its folder"):
            self._folder = datasets.HeldFolder(x) if datasets.is_described(x) else None
        super().__init__(name, ((1, *shape) if as_row else (*shape, 1)) if self._one else shape, dtype)

    @contextlib.contextmanager
    def _using(self, part: str, verb: str) -> Any:
        """In the block others wait where they must; an error names the *part* that could not be *verb*."""
        with datasets.failing_as(self.name, part, verb), self._serial:
            if datasets.is_hdf5(self.x) and not self.x:
                raise StorageError(f"{self.name}: {part} could not be {verb}: the HDF5 file is closed")
            yield
            if self._folder is not None and not self._folder.is_there():  # nor are its chunks
                raise OSError(f"somebody has removed or replaced {datasets.where(self.x)} meanwhile")

    def read(self, target: NDArray[Any], region: Region) -> None:
        if not target.size:
            return
        where = (region.columns if self._as_row else region.rows,) if self._one else region.where
        shaped = target.reshape(-1) if self._one else target
        with self._alone(where), self._using(str(region), "read"):
            if datasets.is_hdf5(self.x):
                self.x.read_direct(shaped, source_sel=where)
                return
            found = datasets.unmasked(self.x[where])
            if found.shape != shaped.shape or found.dtype.newbyteorder("=") != self.native:
                raise StorageError(
                    f"{self.name}: {region} came as shape {found.shape} and dtype {found.dtype}, where "
                    f"{shaped.shape} and {self.dtype} were asked for"
                )
            np.copyto(shaped, found)

    def row_step(self) -> int:
        return self._chunks[-2] if self._chunks is not None and len(self._chunks) > 1 else 1

    def open_to_write(self) -> None:
        if datasets.is_read_only(self.x):
            raise ArgumentError("out is read-only; open it for writing, or pass an object with __setitem__")
        self._is_out, self.persistent = True, datasets.is_persistent(self.x)
        self.place = datasets.where(self.x) if self.persistent else None
        if datasets.is_hdf5(self.x) and self.persistent:
            with self._using(f"the {self.nbytes} bytes of {self.place}", "reserved"):
                datasets.check_room(self.x)

    def write(self, block: NDArray[Any], region: Region) -> None:
        if not block.size:
            return
        where = region.where
        # What lies in memory may keep what it is given, as Zarr's whole chunks without a compressor do.
        cast = block.astype(self.native, "C", "same_kind", copy=not self.persistent)
        with self._alone(where), self._using(str(region), "written"):
            if datasets.is_hdf5(self.x):
                self.x.write_direct(cast, dest_sel=where)
            else:
                self.x[where] = cast
                if tuple(map(int, self.x.shape)) != self.shape:  # Zarr drops what is behind the end
                    raise OSError(f"its shape became {self.x.shape}")
        with self._noting:
            self._written.append(where)

    def _alone(self, where: Index) -> contextlib.AbstractContextManager[Any]:
        """A lock, unless nothing is written or the block has whole chunks only."""
        if not self._is_out:
            return contextlib.nullcontext()
        if self._chunks is None:
            return self._lock
        for at, chunk, length in zip(where, self._chunks, self.shape, strict=True):
            start, stop = datasets.span(at)
            if start % chunk or (stop % chunk and stop != length):
                return self._lock
        return contextlib.nullcontext()

    @property
    def mark(self) -> str | None:
        with self._using(f"its attribute {_MARK}", "read"):
            return str(self.x.attrs[_MARK]) if _MARK in self.x.attrs else None

    def set_mark(self) -> str | None:
        if not self.persistent:
            return None
        with self._using(f"its attribute {_MARK}", "written"):
            self.x.attrs[_MARK] = uuid.uuid4().hex
        self.flush()
        return self.mark

    def remove_mark(self) -> None:
        if self.persistent and self.mark is not None:
            with self._using(f"its attribute {_MARK}", "removed"):
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


def source(name: str, x: Any, *, as_row: bool = True, of_run: datasets.Lock | None = None) -> Storage:
    """The operand *x*, called *name* in errors; a 1-D one is read as (1, K) or (K, 1). *of_run*: what keeps
    the arrays of a run from being read at once that may be serial. Raises StorageError for a file that is
    closed or shorter than the array.
    """
    if not isinstance(x, np.ndarray):
        return DatasetStorage(name, x, as_row, of_run or threading.RLock())
    owner = mappings.map_of(x)
    if owner is None:
        return ArrayStorage(name, x, as_row)
    with datasets.failing_as(name, "the whole array", "reached"):  # whose map may be closed
        file = MappedFile(owner)
    return MappedStorage(name, x, as_row, file)


def sink(
    x: Any, shape: tuple[int, ...], dtype: np.dtype[Any], of_run: datasets.Lock | None = None
) -> Storage:
    """``out``, which takes a product of this shape and dtype. A memmap's file gets its blocks on the disk.
    Raises ArgumentError if it is read-only, ShapeError, DTypeError, StorageError if closed, too short, or
    full.
    """
    given, own = (x.shape, x.dtype) if isinstance(x, np.ndarray) else datasets.layout("out", x)
    if given != tuple(shape):
        raise ShapeError(f"out has shape {given}; the product has shape {tuple(shape)}")
    if not np.can_cast(dtype, own, "same_kind"):
        raise DTypeError(
            f"out has dtype {own}, to which {dtype} is not cast by the rule 'same_kind', the only one for a "
            "dataset; pass a NumPy array, or a memory map"
        )
    found = source("out", x, of_run=of_run)
    found.open_to_write()
    return found


def overlaps(a: Storage, out: Storage) -> bool:
    """Whether an operand and the result may share elements. Two names of one file are one file."""
    if isinstance(a, ArrayStorage) and isinstance(out, ArrayStorage):
        return mappings.share_elements(a.x, out.x) or mappings.shares_file(a.x, out.x)
    mine, theirs = (datasets.origin(each.x) for each in (a, out))  # type: ignore[attr-defined]
    if isinstance(a, DatasetStorage) and isinstance(out, DatasetStorage):
        return datasets.overlap(mine, theirs)
    stored, x = (mine, theirs) if isinstance(a, DatasetStorage) else (theirs, mine)
    if datasets.is_zarr(stored):
        place = mappings.place_of(x)
        return place is not None and datasets.has(stored, place.path)
    if not datasets.is_hdf5(stored):
        return False
    others = (path for path, _ in itertools.islice(datasets.hdf5_reads(stored), 1, None))
    return datasets.shows(stored, mappings.span_in(x, datasets.hdf5_path(stored))) or any(
        mappings.span_in(x, path) is not None for path in others
    )


def is_beside(a: Storage, out: Storage) -> bool:
    """Whether an operand is a map of a file to which blocks of the result are written."""
    if not isinstance(a, MappedStorage):
        return False
    if isinstance(out, DatasetStorage):
        return datasets.is_hdf5(out.x) and mappings.span_in(a.x, datasets.hdf5_path(out.x)) is not None
    mine, theirs = mappings.place_of(a.x), mappings.place_of(out.x)  # type: ignore[attr-defined]
    return mine is not None and theirs is not None and mine.file == theirs.file
