"""Matrices in files, read by blocks: ``FILE.npy``, ``FILE.h5:DATASET``, ``FOLDER.zarr[:ARRAY]``.

h5py and zarr are extras and are imported when used.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .endings import Failure
from .places import Place, identity, links_below, real

_NOT_READ = {
    "npy": "it is no array that NumPy can map",
    "hdf5": "it cannot be opened",
    "zarr": "it cannot be opened as a Zarr array",
}


class Files:
    """The files of one command. Use as a context manager: the end closes them.

    A file is opened once, for writing if it gets the result: HDF5 refuses two ways at a time. Without a
    *result* all are opened for reading.
    """

    def __init__(self, result: Place | None = None) -> None:
        self._written = result.path if result is not None and result.kind == "hdf5" else None
        self._open: dict[Any, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def operand(self, place: Place) -> Any:
        """The matrix at *place*, to read by slices. Raises Failure."""
        if not place.path.exists():
            raise Failure(f"{place.path}: there is no such file")
        if not (place.path.is_dir() if place.kind == "zarr" else place.path.is_file()):
            what = "folder" if place.kind == "zarr" else "regular file"
            raise Failure(f"{place.path}: it is no {what}")
        found = _READ[place.kind](self, place)
        if not hasattr(found, "shape"):
            raise Failure(f"{place.text}: it holds several matrices; name one, such as {place.path}:A")
        return found

    def hdf5(self, place: Place) -> Any:
        """The file, open. One that gets the result is opened for both, and made if it is not there."""
        key = identity(place.path) or real(place.path)
        if key not in self._open:
            written = self._written
            writes = written is not None and key in (identity(written), real(written))
            file = library("h5py", "hdf5", place).File
            with reading(place, str(place.path)):
                self._open[key] = self._stack.enter_context(file(place.path, "a" if writes else "r"))
        return self._open[key]


def library(name: str, extra: str, place: Place) -> Any:
    """The module *name*. Raises Failure if its *extra* is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Failure(f'{place.text}: it needs {name}; `pip install "pyclmm[{extra}]"`') from error


@contextmanager
def reading(place: Place, named: str) -> Iterator[None]:
    """Whatever goes wrong in the block as one line that begins with *named*.

    A malformed file makes libraries raise nearly anything, and warn: NumPy OverflowError and TokenError, h5py
    RuntimeError and KeyError, zarr what its version has.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Failure:
        raise
    except Exception as error:
        text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
        raise Failure(f"{named}: {_NOT_READ[place.kind]}: {text[:300] or type(error).__name__}") from error


def _read_npy(files: Files, place: Place) -> Any:
    with reading(place, str(place.path)):
        return np.lib.format.open_memmap(place.path, mode="r")


def _read_hdf5(files: Files, place: Place) -> Any:
    file = files.hdf5(place)
    with reading(place, place.text):
        if place.name not in file:
            raise Failure(f"{place.text}: the file has no dataset {place.name!r}; it has {_listed(file)}")
        return file[place.name or "/"]


def _listed(group: Any) -> str:
    names = sorted(group)
    return f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else "none"


def _read_zarr(files: Files, place: Place) -> Any:
    zarr = library("zarr", "zarr", place)
    with reading(place, place.text):
        return zarr.open(str(place.path), mode="r", path=place.name)


_READ: dict[str, Callable[[Files, Place], Any]] = {"npy": _read_npy, "hdf5": _read_hdf5, "zarr": _read_zarr}


def read_of(place: Place, x: Any) -> Iterator[tuple[Path, str]]:
    """What the operand *x* at *place* is read from: files and folders, and for HDF5 the names of datasets.

    Links within a Zarr array are followed, and so are external links, virtual datasets and raw files of HDF5.
    """
    if place.kind == "hdf5":
        yield from _read_of_hdf5(x, library("h5py", "hdf5", place).File)
        return
    yield place.root, ""
    if place.kind == "zarr":
        yield from ((path, "") for path in links_below(place.root))


def _read_of_hdf5(x: Any, open_file: Any) -> Iterator[tuple[Path, str]]:
    path = Path(x.file.filename)
    yield path, x.name
    yield from ((path.parent / name, "") for name, *_ in x.external or ())
    for source in x.virtual_sources() if x.is_virtual else ():
        file = path if source.file_name == "." else path.parent / source.file_name
        yield file, source.dset_name
        try:
            with open_file(file, "r") as beside:
                yield from _read_of_hdf5(beside[source.dset_name], open_file)
        except (OSError, KeyError, AttributeError):  # a source that is not there reads as the fill value
            continue
