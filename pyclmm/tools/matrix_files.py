"""Matrices in files, read by blocks: ``FILE.npy``, ``FILE.h5:DATASET``, ``FOLDER.zarr[:ARRAY]``.

h5py and zarr are extras and are imported when used.
"""

from __future__ import annotations

import atexit
import errno
import importlib
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..streaming.datasets import failing_as, hdf5_reads
from .output import FAILED, CommandError
from .paths import identity, real

KINDS = "FILE.npy, FILE.h5:DATASET, FOLDER.zarr or FOLDER.zarr:ARRAY"
_SUFFIXES = {".npy": "npy", ".h5": "hdf5", ".hdf5": "hdf5", ".zarr": "zarr"}
_NAMED = re.compile(r"(?P<path>.+?\.(?:h5|hdf5|zarr)):(?P<name>.+)", re.IGNORECASE | re.DOTALL)
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_READ = {
    "npy": "it is no array that NumPy can map",
    "hdf5": "it cannot be opened",
    "zarr": "it cannot be opened as a Zarr array",
}


@dataclass(frozen=True)
class MatrixPlace:
    """Where a matrix is: ``kind`` is "npy", "hdf5" or "zarr"; ``parts`` name an array within the file."""

    text: str
    kind: str
    path: Path
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> MatrixPlace:
        """What *text* names. Raises CommandError if it is none of KINDS."""
        found = _NAMED.fullmatch(text)
        path, name = (Path(text), "") if found is None else (Path(found["path"]), found["name"])
        kind = _SUFFIXES.get(path.suffix.lower())
        if kind is None or "\0" in text:
            shown = text if text and text.isprintable() else repr(text)
            raise CommandError(f"{shown}: its kind is not known; name {KINDS}")
        parts = tuple(part for part in re.split(r"[/\\]" if kind == "zarr" else "/", name) if part)
        if kind == "hdf5" and not parts:
            raise CommandError(f"{text}: name a dataset of the file too, such as {path}:A")
        if kind == "hdf5" and not _is_utf8(name):
            raise CommandError(f"{text!r}: names within HDF5 files are UTF-8, and this one is not")
        if {".", ".."} & set(parts):
            raise CommandError(
                f"{text}: the name of an array has neither '.' nor '..'; name it from the root on"
            )
        return cls(text, kind, path, parts)

    @property
    def name(self) -> str:
        """The name of the array within the file; empty for the file itself."""
        return "/".join(self.parts)

    @property
    def root(self) -> Path:
        """The file or folder, without links, that the matrix fills; the whole file for HDF5."""
        path = real(self.path)
        return real(path.joinpath(*self.parts)) if self.kind == "zarr" else path


def _is_utf8(text: str) -> bool:
    """Whether *text* came from UTF-8: the system's other bytes become surrogates."""
    with suppress(UnicodeEncodeError):
        return bool(text.encode())
    return False


def _leave() -> None:
    """End the process before HDF5 tries again."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(FAILED)


def mounts_below(folder: Path) -> list[Path]:
    """Where something is mounted in a folder, be it a folder of the same file system. Only Linux tells."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
    escaped = (line.split()[4] for line in lines)  # a space is \\040
    points = (re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), one) for one in escaped)
    return [at for point in points if folder in (at := Path(os.fsdecode(point))).parents]


def links_below(folder: Path) -> Iterator[Path]:
    """What the links in a folder lead to."""
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if os.path.islink(path := os.path.join(where, name)):
                yield real(Path(path))


def is_zarr_array(folder: Path) -> bool:
    """Whether a folder is an array of Zarr, of format 2 or 3."""
    return (folder / ".zarray").is_file() or zarr_json(folder).get("node_type") == "array"


def zarr_json(folder: Path) -> dict[str, Any]:
    """What Zarr's format 3 says of a folder; empty if nothing."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((folder / "zarr.json").read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


class Files:
    """The files of one command; the end of the context closes them. A file is opened once, for writing if it
    gets the *result*: HDF5 refuses two ways at a time.
    """

    def __init__(self, result: MatrixPlace | None = None) -> None:
        self._written = result.path if result is not None and result.kind == "hdf5" else None
        self._open: dict[Any, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        fault = self.close()
        if fault is not None and error is None:
            raise CommandError(f"{self._written}: it could not be closed: {in_one_line(fault)}") from fault

    def close(self) -> Exception | None:
        """Close the files, once. The fault if HDF5 cannot: it would try again, and die by SIGSEGV."""
        try:
            self._stack.close()
        except Exception as fault:
            atexit.register(_leave)
            return fault
        return None

    def flush(self) -> None:
        """Have HDF5 write what it holds back. Raises StorageError."""
        for file in self._open.values():
            with failing_as("out", "what was written", "flushed"):
                file.flush()

    def operand(self, place: MatrixPlace) -> Any:
        """The matrix at *place*, to read by slices. Raises CommandError."""
        if not place.path.exists():
            raise CommandError(f"{place.path}: there is no such file")
        if not (place.path.is_dir() if place.kind == "zarr" else place.path.is_file()):
            what = "folder" if place.kind == "zarr" else "regular file"
            raise CommandError(f"{place.path}: it is no {what}")
        if place.kind == "hdf5":
            found = self._dataset(place)
        elif place.kind == "zarr":
            zarr = library("zarr", "zarr", place)
            with reading(place, place.text):
                found = zarr.open(str(place.path), mode="r", path=place.name)
        else:
            with reading(place, str(place.path)):
                found = np.lib.format.open_memmap(place.path, mode="r")
        if not hasattr(found, "shape"):
            raise CommandError(f"{place.text}: it holds several matrices; name one, such as {place.path}:A")
        return found

    def _dataset(self, place: MatrixPlace) -> Any:
        file = self.hdf5(place)
        with reading(place, place.text):
            if place.name not in file:
                names = sorted(file)
                listed = f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else "none"
                raise CommandError(f"{place.text}: the file has no dataset {place.name!r}; it has {listed}")
            found = file[place.name]
            if found.file == file:
                return found
            name, path = found.name, Path(found.file.filename)  # at the end of an external link
            found.file.close()
            return self.hdf5(replace(place, path=path))[name]

    def hdf5(self, place: MatrixPlace) -> Any:
        """The file, open. One that gets the result is opened for both, and made if it is not there."""
        key = identity(place.path) or real(place.path)
        if key not in self._open:
            written = self._written
            writes = written is not None and key in (identity(written), real(written))
            file = library("h5py", "hdf5", place).File
            with reading(place, str(place.path)), _no_empty_file(place.path if writes else None):
                self._open[key] = self._stack.enter_context(file(place.path, "a" if writes else "r"))
        return self._open[key]


@contextmanager
def _no_empty_file(path: Path | None) -> Iterator[None]:
    """HDF5 leaves an empty file, which it never opens, where the disk has no room for a new one."""
    is_new = path is not None and not path.exists()
    try:
        yield
    except OSError as error:
        if path is not None and is_new and error.errno in _NO_ROOM:  # else it may be another's
            path.unlink(missing_ok=True)
        raise


def library(name: str, extra: str, place: MatrixPlace) -> Any:
    """The module *name*. Raises CommandError if its *extra* is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CommandError(f'{place.text}: it needs {name}; `pip install "pyclmm[{extra}]"`') from error


@contextmanager
def reading(place: MatrixPlace, named: str) -> Iterator[None]:
    """Whatever goes wrong in the block as one line that begins with *named*: of a malformed file libraries
    raise nearly anything, and warn.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except CommandError:
        raise
    except BlockingIOError as error:  # HDF5 locks its files
        raise CommandError(f"{named}: another program has it open; close it there, or wait") from error
    except Exception as error:
        raise CommandError(f"{named}: {_NOT_READ[place.kind]}: {in_one_line(error)}") from error


def in_one_line(error: Exception) -> str:
    """What a library says, which may be any text."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return text[:300] or type(error).__name__


def read_of(place: MatrixPlace, x: Any) -> Iterator[tuple[Path, str]]:
    """What the operand *x* at *place* is read from: files and folders, and for HDF5 the names of datasets.
    Links within a Zarr array are followed, and so are external links, virtual datasets and raw files of HDF5.
    """
    if place.kind == "hdf5":
        yield from hdf5_reads(x)
        return
    yield place.root, ""
    if place.kind == "zarr":
        yield from ((path, "") for path in (*links_below(place.root), *mounts_below(place.root)))
