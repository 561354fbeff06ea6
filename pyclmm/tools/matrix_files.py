"""Matrices in files, as the command line names them: read by blocks, made for a result, removed again.

``FILE.npy``; ``FILE.h5:DATASET`` (h5py); ``FOLDER.zarr``, or ``FOLDER.zarr:ARRAY`` in a group (zarr). The
libraries are extras and are imported when used.
"""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .endings import Failure

KINDS = "FILE.npy, FILE.h5:DATASET, FOLDER.zarr or FOLDER.zarr:ARRAY"
_SUFFIXES = {".npy": "npy", ".h5": "hdf5", ".hdf5": "hdf5", ".zarr": "zarr"}
_NAMED = re.compile(r"(?P<path>.+?\.(?:h5|hdf5|zarr)):(?P<name>.+)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Place:
    """Where a matrix is: ``kind`` is "npy", "hdf5" or "zarr", ``name`` that of an array within the file."""

    text: str
    kind: str
    path: Path
    name: str | None

    @classmethod
    def of(cls, text: str) -> Place:
        """What *text* names. Raises Failure if it is none of KINDS."""
        found = _NAMED.fullmatch(text)
        path, name = (Path(text), None) if found is None else (Path(found["path"]), found["name"])
        kind = _SUFFIXES.get(path.suffix.lower())
        if kind is None:
            raise Failure(f"{text}: its kind is not known; name {KINDS}")
        if kind == "hdf5" and name is None:
            raise Failure(f"{text}: name a dataset of the file too, such as {text}:A")
        return cls(text, kind, path, name)

    def is_same(self, other: Place) -> bool:
        """Whether both name one matrix."""
        return self.path.resolve() == other.path.resolve() and _root(self.name) == _root(other.name)


def _root(name: str | None) -> str:
    return (name or "").strip("/")


class Files:
    """The files of one command. Use as a context manager: the end closes them.

    A file is opened once, for writing if it gets the result: HDF5 refuses two ways at a time.
    """

    def __init__(self, result: Place) -> None:
        self.result = result
        self._open: dict[Path, Any] = {}
        self._stack = ExitStack()
        self._undo: Callable[[], object] | None = None

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def operand(self, place: Place) -> Any:
        """The matrix at *place*, to read by slices. Raises Failure and OSError."""
        if not place.path.exists():
            raise Failure(f"{place.path}: there is no such file")
        found = _READ[place.kind](self, place)
        if not hasattr(found, "dtype"):
            raise Failure(f"{place.text}: it holds several matrices; name one, such as {place.text}:A")
        return found

    def has_result(self) -> bool:
        """Whether the place of the result is taken."""
        place = self.result
        if place.kind == "hdf5":
            return place.path.exists() and place.name in self._hdf5(place)
        if place.kind == "zarr":
            return (place.path / _root(place.name)).exists()
        return place.path.exists()

    def existing_result(self) -> Any:
        """The result of an earlier run, to go on with."""
        return _READ[self.result.kind](self, self.result, mode="r+")

    def new_result(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new matrix at the place of the result, in place of an older one. Raises Failure and OSError."""
        if dtype.kind == "V":
            raise Failure(f"{self.result.text}: files have no name for {dtype}; pass --dtype float32")
        folder = self.result.path.absolute().parent
        if not folder.is_dir():
            raise Failure(f"{self.result.text}: there is no folder {folder}")
        made, self._undo = _MADE[self.result.kind](self, self.result, shape, dtype)
        return made

    def remove_result(self) -> bool:
        """Remove the result if :meth:`new_result` made it. Returns whether it did."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
        return undo is not None

    def _hdf5(self, place: Place) -> Any:
        """The file, open. One that gets the result is opened for both."""
        key = place.path.resolve()
        if key not in self._open:
            writes = self.result.kind == "hdf5" and key == self.result.path.resolve()
            library = _library("h5py", "hdf5", place)
            mode = "a" if writes else "r"
            try:
                self._open[key] = self._stack.enter_context(library.File(place.path, mode))
            except OSError as error:
                raise Failure(f"{place.path}: it cannot be opened: {error}") from error
        return self._open[key]


def _library(name: str, extra: str, place: Place) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Failure(f'{place.text}: it needs {name}; `pip install "pyclmm[{extra}]"`') from error


def _read_npy(files: Files, place: Place, mode: Any = "r") -> Any:
    try:
        return np.load(place.path, mmap_mode=mode, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise Failure(f"{place.path}: it is no array that NumPy can map: {error}") from error


def _read_hdf5(files: Files, place: Place, mode: str = "r") -> Any:
    file = files._hdf5(place)
    if place.name not in file:
        raise Failure(f"{place.text}: the file has no dataset {place.name!r}; it has {_listed(file)}")
    return file[place.name]


def _listed(group: Any) -> str:
    names = sorted(group)
    return f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else "none"


def _read_zarr(files: Files, place: Place, mode: str = "r") -> Any:
    zarr = _library("zarr", "zarr", place)
    try:
        return zarr.open(str(place.path), mode=mode, path=_root(place.name))
    except Exception as error:  # the types differ from version to version
        raise Failure(f"{place.text}: it cannot be opened as a Zarr array: {error}") from error


def _make_npy(files: Files, place: Place, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    made = np.lib.format.open_memmap(place.path, mode="w+", dtype=dtype, shape=shape)
    return made, lambda: place.path.unlink(missing_ok=True)


def _make_hdf5(files: Files, place: Place, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    is_new = not place.path.exists()
    file = files._hdf5(place)
    if place.name in file:
        del file[place.name]
    made = file.create_dataset(place.name, shape=shape, dtype=dtype)

    def undo() -> None:
        """A file that was there keeps its length: HDF5 gives the space to later datasets."""
        del file[place.name]
        if is_new:
            file.close()
            place.path.unlink()

    return made, undo


def _make_zarr(files: Files, place: Place, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    zarr = _library("zarr", "zarr", place)
    made = zarr.open_array(
        str(place.path), mode="w", path=_root(place.name), shape=shape, dtype=dtype, chunks=_chunks(shape)
    )
    return made, lambda: shutil.rmtree(place.path / _root(place.name), ignore_errors=True)


def _chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Chunks of one matrix, 1024 elements a side at most: tiles are powers of two where they can be."""
    return (*(1 for _ in shape[:-2]), *(min(max(1, length), 1024) for length in shape[-2:]))


_READ: dict[str, Callable[..., Any]] = {"npy": _read_npy, "hdf5": _read_hdf5, "zarr": _read_zarr}
_MADE: dict[str, Callable[..., Any]] = {"npy": _make_npy, "hdf5": _make_hdf5, "zarr": _make_zarr}
