"""Arrays in files that are read by slicing: HDF5 datasets, Zarr arrays, and whatever offers the same.

Neither h5py nor zarr is imported: an object of theirs can only come from a program that has imported them.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import math
import operator
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from .. import environment
from ..errors import ArgumentError, DTypeError, ShapeError, StorageError, brief
from .journal import sync
from .tiles import Index, Span

# What tells an array whose memory others can see, and modules whose arrays are no stored ones.
_ELSEWHERE = {"__array_interface__", "__array_struct__", "__cuda_array_interface__", "__dlpack__"}
_ELSEWHERE |= {"__dask_graph__"}
_OTHERS = {"cupy", "dask", "jax", "jaxlib", "numpy", "pandas", "polars", "pyopencl", "scipy", "sparse"}
_OTHERS |= {"torch", "xarray"}
_DESCRIBE = ("zarr.json", ".zarray", ".zattrs")  # Zarr's files beside the chunks
_IN_FOLDERS = {"LocalStore", "DirectoryStore", "NestedDirectoryStore"}
Lock = contextlib.AbstractContextManager[Any]
_HDF5 = threading.RLock()  # HDF5 is serial


def _is_of(x: object, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(x, kind)


def is_hdf5(x: object) -> bool:
    """Whether *x* is a dataset of h5py."""
    return _is_of(x, "h5py", "Dataset")


def is_zarr(x: object) -> bool:
    """Whether *x* is an array of zarr."""
    return _is_of(x, "zarr", "Array")


def is_stored(x: object) -> bool:
    """Whether *x* lies in storage and is read by slicing: an HDF5 dataset, a Zarr array or anything alike.
    Alike is what has ``shape``, a NumPy ``dtype`` and ``__getitem__``, and no memory that others can see.
    """
    if isinstance(x, np.ndarray | np.generic | memoryview | type):
        return False
    if is_hdf5(x) or is_zarr(x):
        return True
    if any(base.__module__.partition(".")[0] in _OTHERS for base in type(x).__mro__[:-1]):
        return False
    if not hasattr(type(x), "__getitem__") or any(hasattr(type(x), name) for name in _ELSEWHERE):
        return False
    try:
        return isinstance(x.shape, tuple) and isinstance(x.dtype, np.dtype)  # type: ignore[attr-defined]
    except Exception:  # a property of somebody else's
        return False


def origin(x: Any) -> Any:
    """The dataset of which *x* is a view of h5py's own, as ``x.astype("f8")`` is; *x* for anything else."""
    is_view = type(x).__module__.partition(".")[0] == "h5py"  # a class of others may show a part alone
    shown = getattr(x, "_dset", None) if is_view else None
    return shown if is_hdf5(shown) else x


def layout(name: str, x: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of a stored array. Raises StorageError if it is closed, DTypeError for its dtype."""
    if is_hdf5(x) and not x:
        raise StorageError(f"{name} is an HDF5 dataset whose file is closed; open the file again")
    with failing_as(name, "its metadata"):
        is_gone = is_zarr(x) and is_persistent(x) and not is_described(x)
    if is_gone:  # Zarr would read zeros
        raise StorageError(
            f"{name} is the Zarr array {where(x)}, which is no longer there: it was removed, or its path is "
            "relative and the working directory another one; open it again"
        )
    with failing_as(name, "its shape"):
        shape, dtype = x.shape, np.dtype(x.dtype)
    if shape is None:
        raise ArgumentError(
            f"{name} is an empty HDF5 dataset without a shape; pass one with rows and columns"
        )
    if dtype.names is not None or dtype.kind in "OSUMm":
        raise DTypeError(f"{name} has dtype {dtype}; pass a dataset of numbers, such as float32")
    try:
        lengths = tuple(map(operator.index, shape))
    except TypeError:
        lengths = (-1,)
    if min(lengths, default=0) < 0 or math.prod(lengths) * dtype.itemsize > sys.maxsize:
        raise ShapeError(
            f"{name} has shape {brief(shape)}; pass an array whose lengths are whole numbers, and of fewer "
            "than 2^63 bytes"
        )
    return lengths, dtype


def where(x: Any) -> str | None:
    """Where the dataset is: file and name, a Zarr array's folder, or its store and path; else None."""
    if is_hdf5(x):
        return f"{os.path.realpath(hdf5_path(x))}:{x.name}"
    if is_zarr(x):
        folder = _folder(x)
        return f"{x.store}:{x.path}" if folder is None else os.path.realpath(folder)
    return None


def hdf5_path(x: Any) -> Path:
    """The file of a dataset of HDF5. Its own name for it leads elsewhere once the process has changed its
    working directory, or somebody has renamed the file.
    """
    path = Path(os.path.abspath(x.file.filename))
    if x.file.driver == "sec2":
        opened = f"/proc/self/fd/{x.file.id.get_vfd_handle()}"
        if os.path.exists(opened) and not _samefile(path, opened):
            return Path(os.readlink(opened))
    return path


def hdf5_object(file: Any, name: str) -> Any:
    """What is called *name*; None if nothing is, or a link leads nowhere."""
    try:
        return file[name or "/"]
    except (KeyError, OSError, RuntimeError):
        return None


def is_read_only(x: Any) -> bool:
    """Whether *x* was opened for reading only, or its class has no way to write."""
    if is_hdf5(x):
        return bool(x.file.mode == "r")
    if is_zarr(x):
        return bool(x.read_only)
    return not hasattr(type(x), "__setitem__")


def is_persistent(x: Any) -> bool:
    """Whether what is written to the dataset survives this process."""
    if is_hdf5(x):
        return x.file.driver in ("sec2", "stdio", "windows")
    return is_zarr(x) and type(x.store).__name__ in _IN_FOLDERS


def check_room(x: Any) -> None:
    """Raise OSError if the disk has no room for a dataset of HDF5 whose bytes it has not allocated: a full
    disk may damage the file, and ends the process by SIGSEGV when HDF5 closes it. Chunks may be compressed.
    """
    if x.chunks is None and not (x.is_virtual or x.external or x.id.get_storage_size()):
        try:
            free = shutil.disk_usage(hdf5_path(x)).free
        except OSError:  # the file was removed
            return
        if x.nbytes > free + x.file.id.get_freespace():
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {free} bytes are free")


def same(x: Any, y: Any) -> bool:
    """Whether two stored arrays are one."""
    if x is y:
        return True
    if is_hdf5(x) and is_hdf5(y):
        return bool(x == y) or where(x) == where(y)
    if not (is_zarr(x) and is_zarr(y)):
        return False
    return (
        (x.store == y.store and x.path == y.path) or where(x) == where(y) or _samefile(_folder(x), _folder(y))
    )


def overlap(x: Any, y: Any) -> bool:
    """Whether two stored arrays may have elements in common: virtual HDF5 datasets show those of others."""
    return same(x, y) or (is_hdf5(x) and is_hdf5(y) and (_is_part(x, y) or _is_part(y, x)))


def _is_part(x: Any, of: Any) -> bool:
    """Whether the dataset *of* may be a virtual one that shows elements of *x*."""
    if not of.is_virtual:
        return False
    read = (name for path, name in hdf5_reads(of) if _samefile(path, hdf5_path(x)))
    return any(not name or hdf5_object(x.file, name) == x for name in read)


def hdf5_reads(x: Any, seen: set[tuple[Path, str]] | None = None) -> Iterator[tuple[Path, str]]:
    """What a dataset of HDF5 is read from: files, and in HDF5 files the name; "" for any of a file. Virtual
    datasets and raw files are followed to each place where HDF5 may find them, but for those *seen*.
    """
    seen = set() if seen is None else seen
    path = Path(os.path.realpath(hdf5_path(x)))
    if (path, x.name) in seen:
        return
    seen.add((path, x.name))
    yield path, x.name
    for name, *_ in x.external or ():
        yield from ((at, "") for at in _places(path, name, environment.HDF5_EXTERNAL.value))
    for source in x.virtual_sources() if x.is_virtual else ():
        same, name = source.file_name == ".", source.dset_name.replace("%%", "%")
        for at in [path] if same else _places(path, source.file_name, environment.HDF5_VIRTUAL.value):
            if "%b" in source.dset_name:  # many datasets
                yield at, ""
                continue
            yield at, name
            # A source that is not there reads as the fill value.
            with contextlib.suppress(OSError, KeyError, AttributeError), contextlib.ExitStack() as stack:
                try:
                    beside = x.file if same else stack.enter_context(type(x.file)(at, "r"))
                except OSError:  # this process may have opened it in another way
                    yield at, ""
                else:
                    yield from hdf5_reads(beside[name], seen)


def _places(path: Path, name: str, prefixes: str) -> Iterator[Path]:
    """Where HDF5 may find the file *name*: by *prefixes*, beside *path*, from here. "%b" is a number."""
    pattern = "*".join(map(glob.escape, name.split("%b"))).replace("%%", "%")
    given = prefixes.replace("${ORIGIN}", str(path.parent)).split(os.pathsep)
    for folder in (*filter(None, given), path.parent, Path.cwd()):
        yield from map(Path, glob.glob(os.path.join(glob.escape(str(folder)), pattern)))


def shows(x: Any, span: tuple[int, int] | None) -> bool:
    """Whether an HDF5 dataset has bytes of *span* of its file, or may have."""
    if span is None or not x.id.get_storage_size():
        return False
    first = x.id.get_offset()
    if first is None and x.chunks is None:  # within the file's own records
        return True
    parts = [(first, x.id.get_storage_size())]
    if first is None:
        found = map(x.id.get_chunk_info, range(x.id.get_num_chunks()))
        parts = [(one.byte_offset, one.size) for one in found]
    return any(first < span[1] and span[0] < first + size for first, size in parts)


def _folder(x: Any) -> str | None:
    """The folder of a Zarr array on a disk."""
    store = x.store
    while hasattr(store, "_store"):  # in one that logs, or caches
        store = store._store
    files = getattr(store, "fs", None)  # of fsspec, which may be remote
    kinds = getattr(files, "protocol", ())
    if files is not None and "file" not in ((kinds,) if isinstance(kinds, str) else kinds):
        return None
    root = getattr(store, "root", None) or getattr(store, "path", None)
    return os.path.join(root, x.path) if isinstance(root, str | os.PathLike) else None


def is_described(x: Any) -> bool:
    """Whether *x* is a Zarr array in a folder that has its metadata. Chunks that are missing are no fault:
    they read as the fill value, and a write makes their folder anew.
    """
    folder = _folder(x) if is_zarr(x) else None
    return folder is not None and any(Path(folder, name).is_file() for name in _DESCRIBE)


class HeldFolder:
    """The folder of a Zarr array, kept open where the system can, so that no other gets its number."""

    def __init__(self, x: Any) -> None:
        self._x, self._path, self._handle = x, str(_folder(x)), -1
        with contextlib.suppress(PermissionError):  # it may not be listed; Windows opens none
            self._handle = os.open(self._path, os.O_RDONLY)
            finalize(self, os.close, self._handle).atexit = False

    def is_there(self) -> bool:
        """Whether it is at its place, and describes the array."""
        return (self._handle < 0 or _samefile(self._handle, self._path)) and is_described(self._x)


def has(x: Any, path: str | os.PathLike[str]) -> bool:
    """Whether a file, by this name or where its links lead, is one of a Zarr array's."""
    folder = _folder(x)
    return folder is not None and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _samefile(x: str | Path | int | None, y: str | Path | None) -> bool:
    try:
        return x is not None and y is not None and os.path.samefile(x, y)
    except OSError:
        return False


def chunks(x: Any) -> tuple[int, ...] | None:
    """The lengths of what is written as one: a Zarr shard, else a chunk. None if the dataset has none."""
    try:
        found = getattr(x, "shards", None) or getattr(x, "chunks", None)
        lengths = tuple(int(length) for length in found or ())
    except Exception:  # a class of somebody else's means another thing by the word
        return None
    return lengths if len(lengths) == len(x.shape) and all(length > 0 for length in lengths) else None


def lock_for(x: Any, of_run: Lock) -> Lock:
    """What reads of *x* have to hold. Of a class of somebody else's nobody knows whether it is serial: it
    holds the lock *of_run*. A read may wait for another run, whatever thread begins that.
    """
    return _HDF5 if is_hdf5(x) else contextlib.nullcontext() if is_zarr(x) else of_run


def check_lock(name: str, x: Any) -> None:
    """Raise ArgumentError if this thread holds a lock for which the threads of a run would wait: h5py's, or
    that of HDF5, within which a signal's handler may run.
    """
    phil = getattr(sys.modules.get("h5py._objects"), "phil", None)
    locks: list[Any] = [] if is_zarr(x) else [phil, _HDF5] if is_hdf5(x) else [phil]
    if any(lock is not None and lock._is_owned() for lock in locks):
        raise ArgumentError(
            f"{name} would be read by other threads, and h5py, which has called this function (as visititems "
            "does) or is interrupted by it, holds its lock until it returns; collect the names there, and "
            "multiply afterwards"
        )


def flush(x: Any, written: list[Index]) -> None:
    """Give what was written to the system, and wait for the disk where there is a file to wait for."""
    if is_hdf5(x):
        with _HDF5:
            x.file.flush()
            path = hdf5_path(x)
        if is_persistent(x):
            sync(path, path.parent)
    elif is_zarr(x):
        if is_persistent(x):
            _flush_zarr(x, written)
    elif callable(getattr(x, "flush", None)):
        x.flush()


def _flush_zarr(x: Any, written: list[Index]) -> None:
    """Wait for the files of the chunks that *written* touches, those that describe *x*, and their names."""
    encode = getattr(getattr(x, "metadata", None), "encode_chunk_key", None)
    lengths = chunks(x)
    if encode is None or lengths is None:  # zarr 2 names no chunk
        if hasattr(os, "sync"):
            os.sync()
        return
    folder = Path(x.store.root, x.path)
    found = {path for name in _DESCRIBE if (path := folder / name).is_file()}
    for where in written:
        spans = zip(map(span, where), lengths, strict=True)
        every = itertools.product(*(range(first // n, -(-stop // n)) for (first, stop), n in spans))
        found.update(path for at in every if (path := folder / encode(at)).is_file())  # not if all is 0
    folders = {above for path in found for above in path.parents if above.is_relative_to(folder)}
    sync(*found, *folders, folder.parent)


def span(at: slice | int) -> Span:
    """Start and stop of an index."""
    return Span(at.start, at.stop) if isinstance(at, slice) else Span(at, at + 1)


@contextlib.contextmanager
def failing_as(name: str, part: str, verb: str = "read") -> Iterator[None]:
    """What goes wrong in the block as a StorageError that names the argument and the part. Libraries raise
    many types for one fault: h5py ValueError, RuntimeError, KeyError and OSError.
    """
    try:
        yield
    except (StorageError, MemoryError):
        raise
    except Exception as error:
        cause = " ".join(str(error).split()) or type(error).__name__  # HDF5 writes several lines
        found = StorageError(f"{name}: {part} could not be {verb}: {cause}")
        found.errno = getattr(error, "errno", None)
        raise found from error


def unmasked(found: Any) -> NDArray[Any]:
    """What slicing gave, as an array. Raises ValueError, for failing_as, if some elements are masked."""
    if np.ma.is_masked(found):
        raise ValueError("some elements are masked, which products cannot be; fill them, x.filled(0)")
    return np.asarray(found)
