"""The kinds of file that get a command's result: ``.npy``, Zarr, HDF5."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .endings import CommandError
from .matrix_files import Files, MatrixPlace, identity, library, mounts_below, reading, real
from .result import Beside, Result, zarr_json

# What a Zarr array consists of: its metadata, chunks by either way to name them, and what a kill left of one.
_OF_ZARR = re.compile(r"zarr\.json|\.zarray|\.zattrs|(c|\d+)([/.]\d+)*(\.[0-9a-f]+\.partial)?")


def result_at(place: MatrixPlace, checkpoint: Path | None) -> Result:
    """The result at *place*, of a run with this checkpoint."""
    kinds: dict[str, type[Result]] = {"npy": _Npy, "zarr": _Zarr, "hdf5": _Hdf5}
    return kinds[place.kind](place, checkpoint)


class _Npy(Beside):
    """``FILE.npy``."""

    def _matrix(self, at: Path) -> Any:
        if not at.is_file():
            raise self._no_matrix("it is no regular file")
        return np.lib.format.open_memmap(at, mode="r")

    def _made(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.lib.format.open_memmap(self.staged, mode="w+", dtype=dtype, shape=shape)

    def _opened(self) -> Any:
        return np.lib.format.open_memmap(self.staged, mode="r+")


class _Zarr(Beside):
    """``FOLDER.zarr``, or ``FOLDER.zarr:ARRAY``."""

    def _matrix(self, at: Path) -> Any:
        found = self._zarr().open(str(at), mode="r")
        if not hasattr(found, "shape"):
            raise self._no_matrix("it is a Zarr group, not an array")
        if mounts_below(at):
            raise self._no_matrix("something is mounted in the array's folder")
        files = (os.path.join(where, name) for where, _, names in os.walk(at) for name in names)
        relative = (Path(path).relative_to(at).as_posix() for path in files)
        other = next((path for path in relative if not _OF_ZARR.fullmatch(path)), None)
        if other is not None:
            raise self._no_matrix(f"the array's folder holds other files ({other})")
        return found

    def _holds(self, files: Files, path: Path, name: str) -> bool:
        """What is mounted in an operand may also lie in the old array."""
        below = (identity(Path(at)) for at, *_ in os.walk(self.place.root))
        return super()._holds(files, path, name) or (
            path in mounts_below(path.parent) and identity(path) in below
        )

    def _zarr(self) -> Any:
        return library("zarr", "zarr", self.place)

    def _made(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        chunks = (*(1 for _ in shape[:-2]), *(min(max(1, length), 1024) for length in shape[-2:]))
        return self._zarr().open_array(
            str(self.staged), mode="w", shape=shape, dtype=dtype, chunks=chunks, **self._format()
        )

    def _opened(self) -> Any:
        return self._zarr().open_array(str(self.staged), mode="r+")

    def _format(self) -> dict[str, int]:
        """The format of the array that is replaced, or of the group around it. Zarr 2 knows one, unnamed."""
        is_first = int(self._zarr().__version__.partition(".")[0]) < 3
        around = (self.place.root, *(self._group(count) for count in range(len(self.place.parts))[::-1]))
        second = (at for at in around if (at / ".zarray").is_file() or (at / ".zgroup").is_file())
        return {} if is_first or next(second, None) is None else {"zarr_format": 2}

    def _group(self, parts: int) -> Path:
        """The group that the first *parts* of the array's name lead to."""
        return real(self.place.path).joinpath(*self.place.parts[:parts])

    def _make_way(self, root: Path) -> None:
        """No call exchanges two folders: for a moment the old array lies in this run's folder."""
        if self.place.parts:
            self._zarr().open_group(
                str(self.place.path),
                mode="a",
                path="/".join(self.place.parts[:-1]) or None,
                **self._format(),
            )
        if self._seen is not None:
            os.rename(root, self._old)

    def _tell(self) -> None:
        """Write the metadata that groups have gathered anew: readers go by it, and not by the array's own."""
        for parts in range(len(self.place.parts))[::-1]:
            group = self._group(parts)
            if (group / ".zmetadata").is_file() or zarr_json(group).get("consolidated_metadata"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # format 3 does not specify it
                    self._zarr().consolidate_metadata(str(group))


class _Hdf5(Result):
    """``FILE.h5:DATASET``. The file is changed in place, since others lie in it."""

    def __init__(self, place: MatrixPlace, checkpoint: Path | None) -> None:
        super().__init__(place, checkpoint)
        self.staged = f"pyclmm-{self.tag}"
        self._file: Any = None
        self._is_new = False

    def _holds(self, files: Files, path: Path, name: str) -> bool:
        if not name or identity(path) is None or identity(path) != identity(self.place.path):
            return super()._holds(files, path, name)
        file = files.hdf5(self.place)
        written, other = (self.place.name, self.staged), _object(file, name)
        return name.strip("/") in written or other in filter(None, (_object(file, x) for x in written))

    def _found(self, files: Files) -> Any:
        if not self.place.path.exists():
            return None
        at = files.hdf5(self.place)
        for part in self.place.parts:
            if hasattr(at, "shape"):
                raise self._no_matrix(f"it lies below the dataset {at.name}")
            link = at.get(part, getlink=True)
            if link is None:
                return None
            if hasattr(link, "path"):
                raise self._no_matrix(f"{part} is a link, to {link.path}")
            at = at[part]
        if not hasattr(at, "shape"):
            raise self._no_matrix("it is no dataset, but holds others")
        return at

    def begin(self, files: Files, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        self._is_new = not self.place.path.exists()
        with reading(self.place, self.place.text):
            file = files.hdf5(self.place)
            if file.get(self.staged, getlink=True) is not None:
                del file[self.staged]
            self._file, made = file, file.create_dataset(self.staged, shape=shape, dtype=dtype)
            file.flush()
        return made

    def go_on(self, files: Files) -> Any:
        file = files.hdf5(self.place) if self.place.path.exists() else {}
        if self.staged not in file:
            raise self._gone()
        self._file = file
        return file[self.staged]

    def finish(self) -> None:
        try:
            if self.place.name in self._file:
                del self._file[self.place.name]
            self._file.move(self.staged, self.place.name)
            self._file.flush()
        except Exception as error:
            raise CommandError(
                f"{self.place.text}: the result is complete in its file's {self.staged}: {error}"
            ) from error

    def give_up(self, keep: bool) -> None:
        """A file that was there keeps its length: HDF5 gives the space to later datasets."""
        if self._file is not None and not keep:
            del self._file[self.staged]
            if self._is_new:
                self._file.close()
                self.place.path.unlink()


def _object(file: Any, name: str) -> Any:
    try:
        return file[name or "/"]
    except (KeyError, OSError, RuntimeError):  # not there, or a link that leads nowhere
        return None
