"""Where matrices are, as the command line names them, and whether two names lead to the same bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .endings import Failure

KINDS = "FILE.npy, FILE.h5:DATASET, FOLDER.zarr or FOLDER.zarr:ARRAY"
_SUFFIXES = {".npy": "npy", ".h5": "hdf5", ".hdf5": "hdf5", ".zarr": "zarr"}
_NAMED = re.compile(r"(?P<path>.+?\.(?:h5|hdf5|zarr)):(?P<name>.+)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Place:
    """Where a matrix is: ``kind`` is "npy", "hdf5" or "zarr"; ``parts`` name an array within the file."""

    text: str
    kind: str
    path: Path
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Place:
        """What *text* names. Raises Failure if it is none of KINDS."""
        found = _NAMED.fullmatch(text)
        path, name = (Path(text), "") if found is None else (Path(found["path"]), found["name"])
        kind = _SUFFIXES.get(path.suffix.lower())
        if kind is None or "\0" in text:
            shown = text if text.isprintable() else repr(text)
            raise Failure(f"{shown}: its kind is not known; name {KINDS}")
        if kind == "hdf5" and not name:
            raise Failure(f"{text}: name a dataset of the file too, such as {text}:A")
        parts = tuple(part for part in re.split(r"[/\\]" if kind == "zarr" else "/", name) if part)
        if {".", ".."} & set(parts):
            raise Failure(f"{text}: the name of an array has neither '.' nor '..'; name it from the root on")
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


def real(path: Path) -> Path:
    """*path* without links. It need not be there."""
    return Path(os.path.realpath(path))


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None if nothing is there. Links are followed."""
    with suppress(FileNotFoundError, NotADirectoryError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def overlap(x: Path, y: Path) -> bool:
    """Whether one of two files or folders is the other, or lies in it, by whatever names and links."""
    x, y = real(x), real(y)
    if x == y or x in y.parents or y in x.parents:
        return True
    around_x, around_y = ({identity(at) for at in (z, *z.parents)} - {None} for z in (x, y))
    return identity(x) in around_y or identity(y) in around_x


def links_below(folder: Path) -> Iterator[Path]:
    """What the links in a folder lead to."""
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if os.path.islink(path := os.path.join(where, name)):
                yield real(Path(path))
