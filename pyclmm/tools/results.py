"""Where a command's result goes: nothing that is there is changed before it is complete, then it is renamed.

A ``.npy`` file or a Zarr array is written in the folder ``OUT.unfinished-TAG`` beside, a dataset of HDF5
under the name ``pyclmm-unfinished-TAG`` in its file. TAG follows from OUT and the checkpoint's folder, so
that the same command finds what it has begun, and no other does.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import warnings
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError
from ..streaming.datasets import failing_as, hdf5_object
from ..streaming.journal import FolderLock
from .matrix_files import Files, MatrixPlace, library, mounts_below, reading, zarr_json
from .output import CommandError
from .paths import identity, real
from .result import Result

_LOCK, _NEW, _OLD = "lock", "new", "old"
# What a Zarr array consists of: its metadata, chunks by either way to name them, and what a kill left of one.
_OF_ZARR = re.compile(r"zarr\.json|\.zarray|\.zattrs|(c|\d+)([/.]\d+)*(\.[0-9a-f]+\.partial)?")


def result_at(place: MatrixPlace, checkpoint: Path | None) -> Result:
    """The result at *place*, of a run with this checkpoint."""
    kinds: dict[str, type[Result]] = {"npy": _Npy, "zarr": _Zarr, "hdf5": _Hdf5}
    return kinds[place.kind](place, checkpoint)


class _WrittenBeside(Result):
    """A result that is a file or a folder of its own."""

    def __init__(self, place: MatrixPlace, checkpoint: Path | None) -> None:
        super().__init__(place, checkpoint)
        store = real(place.path)
        self.folder = store.with_name(f"{store.name}.{self.tag}")
        self.staged, self._old = self.folder / _NEW, self.folder / _OLD
        self._lock: FolderLock | None = None
        self._seen: object = None

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.place.root, self.folder

    def _found(self, files: Files) -> Any:
        at = real(self.place.path.parent) / self.place.path.name
        for part in ("", *self.place.parts):
            if (at := at / part).is_symlink():
                raise self._no_matrix(f"{at} is a link, to {real(at)}")
            identity(self.folder.parent / part)  # raises for a name that the system does not take
            if at.exists() and self.place.kind == "zarr" and not at.is_dir():
                raise self._no_matrix(f"{at} is no folder")
        self._seen = identity(at)
        return None if self._seen is None else self._matrix(at)

    @abstractmethod
    def _matrix(self, at: Path) -> Any:
        """The matrix that is there. Raises CommandError, or anything, for what is no matrix."""

    def _own(self) -> None:
        """Take the folder, which is this run's until its end."""
        try:
            self._lock = FolderLock(self.folder / _LOCK)
        except CheckpointError:
            raise CommandError(
                f"{self.place.text}: another command is writing it, in {self.folder}"
            ) from None
        except OSError as error:
            why = error.strerror or error
            raise CommandError(f"{self.folder / _LOCK}: it cannot be locked: {why}") from error
        found = {path.name for path in self.folder.iterdir()} - {_LOCK, _NEW}
        if found:
            self._lock.release(remove=True)
            self._lock = None
            raise CommandError(
                f"{self.folder}: it holds {', '.join(sorted(found))}, put there by a run that was killed "
                f"while it replaced {self.place.text}, or by somebody else; move that, and delete the folder"
            )

    def begin(self, files: Files, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        self.folder.mkdir(mode=0o700, exist_ok=True)  # what is replaced may be private
        self._own()
        if self.staged.is_dir():
            shutil.rmtree(self.staged)
        else:
            self.staged.unlink(missing_ok=True)
        with failing_as(self.place.text, str(self.staged), "written"):
            return self._made(shape, dtype)

    def go_on(self, files: Files) -> Any:
        if not self.staged.exists():
            raise self._gone()
        self._own()
        with reading(self.place, str(self.staged)):
            return self._opened()

    @abstractmethod
    def _made(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any: ...

    @abstractmethod
    def _opened(self) -> Any: ...

    def finish(self) -> None:
        root = self.place.root
        is_there = True
        try:
            # Zarr makes a folder anew, but none of these.
            marks = self.staged, self.staged / "zarr.json", self.staged / ".zarray"
            if not (is_there := any(path.is_file() for path in marks)):
                raise OSError("somebody has removed it meanwhile")
            if identity(root) != self._seen:
                raise OSError("somebody else has changed OUT meanwhile")
            with suppress(OSError):  # it is not there, or its system has no permissions
                shutil.copymode(root, self.staged)
            self._make_way(root)
            os.replace(self.staged, root)
        except Exception as error:
            self.give_up(keep=is_there)
            state = "complete in" if is_there else "lost with"
            raise CommandError(f"{self.place.text}: the result is {state} {self.staged}: {error}") from error
        self.give_up(keep=False)
        try:
            self._tell()
        except Exception as error:
            raise CommandError(
                f"{self.place.text}: the result is there, but its groups still tell of the old one: "
                f"{error}; call zarr.consolidate_metadata"
            ) from error

    def _make_way(self, root: Path) -> None:
        """What comes before the renaming."""

    def _tell(self) -> None:
        """What comes after it."""

    def give_up(self, keep: bool) -> None:
        if self._lock is not None:
            self._lock.release(remove=True)
            if not keep:
                shutil.rmtree(self.folder, ignore_errors=True)


class _Npy(_WrittenBeside):
    """``FILE.npy``."""

    def _matrix(self, at: Path) -> Any:
        if not at.is_file():
            raise self._no_matrix("it is no regular file")
        return np.lib.format.open_memmap(at, mode="r")

    def _made(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.lib.format.open_memmap(self.staged, mode="w+", dtype=dtype, shape=shape)

    def _opened(self) -> Any:
        return np.lib.format.open_memmap(self.staged, mode="r+")


class _Zarr(_WrittenBeside):
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
                str(self.place.path), mode="a", path="/".join(self.place.parts[:-1]) or None, **self._format()
            )
        if self._seen is not None:
            os.rename(root, self._old)

    def give_up(self, keep: bool) -> None:
        """When a chunk could not be written, Zarr's threads go on with others until the process exits."""
        goes_on = self._lock is not None and not keep and self.staged.exists()  # else complete, or another's
        super().give_up(keep)
        if goes_on:
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

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
        self._files: Files | None = None  # with that file, if it was made here

    def _holds(self, files: Files, path: Path, name: str) -> bool:
        if not name or identity(path) is None or identity(path) != identity(self.place.path):
            return super()._holds(files, path, name)
        file = files.hdf5(self.place)
        written, other = (self.place.name, self.staged), hdf5_object(file, name)
        return name.strip("/") in written or other in filter(None, (hdf5_object(file, x) for x in written))

    def _found(self, files: Files) -> Any:
        if not self.place.path.exists():
            return None
        if not self.place.path.is_file():
            raise self._no_matrix("it is no regular file")
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
        self._files = None if self.place.path.exists() else files
        with reading(self.place, self.place.text):
            self._file = files.hdf5(self.place)
            if self._file.get(self.staged, getlink=True) is not None:
                del self._file[self.staged]
            made = self._file.create_dataset(self.staged, shape=shape, dtype=dtype)
            self._file.flush()
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
            with suppress(Exception):  # of a full disk, on which the run has failed before
                del self._file[self.staged]
            if self._files is not None:
                self._files.close()
                self.place.path.unlink()
