"""Where a command's result goes: nothing that is there is changed before it is complete, then it is renamed.

A ``.npy`` file or a Zarr array is written in the folder ``OUT.unfinished-TAG`` beside, a dataset of HDF5
under the name ``pyclmm-unfinished-TAG`` in its file. TAG follows from OUT and the checkpoint's folder, so
that the same command finds what it has begun, and no other does.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError
from ..streaming.journal import FolderLock, digest_of
from .endings import CommandError
from .matrix_files import KINDS, Files, MatrixPlace, identity, overlap, read_of, reading, real

_LOCK, _NEW, _OLD = "lock", "new", "old"
_NUMBERS = "biufc"


class Result(ABC):
    """A result that takes its place when it is complete.

    Call refuse_overlaps and check, then begin or go_on, then finish or give_up.
    """

    def __init__(self, place: MatrixPlace, checkpoint: Path | None) -> None:
        self.place, self.checkpoint = place, checkpoint
        named = [place.name, str(checkpoint and real(checkpoint))]
        self.tag = f"unfinished-{digest_of(named)[:8]}"

    def refuse_overlaps(
        self, files: Files, operands: Iterable[tuple[MatrixPlace, Any]], others: Mapping[str, Path | None]
    ) -> None:
        """Raise CommandError if the result, or one of *others* that are written, shares bytes with an operand
        or with another. *others* has the options' names.
        """
        written = {name: path for name, path in others.items() if path is not None}
        for place, x in operands:
            for path, name in read_of(place, x):
                if self._holds(files, path, name):
                    raise CommandError(
                        f"{self.place.text}: OUT is an operand too, or lies in or around {place.text}, or is "
                        f"first written there; name another, of {KINDS}"
                    )
                _refuse(written, path, place.text)
        for root in self.roots:
            _refuse(written, root, self.place.text)
        for name, path in written.items():
            _refuse({other: at for other, at in written.items() if other != name}, path, name)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The files and folders that are written."""
        return (self.place.root,)

    def _holds(self, files: Files, path: Path, name: str) -> bool:
        """Whether what an operand is read from shares bytes with the result."""
        return any(overlap(path, root) for root in self.roots)

    def check(self, files: Files, dtype: np.dtype[Any], overwrite: bool) -> None:
        """Raise CommandError unless the place is free, or has such a matrix and *overwrite* is set."""
        text, root = self.place.text, self.place.root
        if dtype.kind == "V":
            raise CommandError(f"{text}: files have no name for {dtype}; pass --dtype float32")
        store = real(self.place.path)
        if not store.parent.is_dir():
            raise CommandError(f"{text}: there is no folder {store.parent}")
        around = next((at for at in root.parents if _is_zarr_array(at)), None)
        if around is not None:
            raise CommandError(f"{text}: it lies within the Zarr array {around}; name a place beside it")
        with reading(self.place, text):
            there = self._found(files)
        if there is not None and (there.dtype.kind not in _NUMBERS or not there.shape):
            raise self._no_matrix(f"it holds {there.dtype} of shape {there.shape}")
        if there is not None and not overwrite:
            raise CommandError(f"{text} is there; name another, or pass --overwrite")

    @abstractmethod
    def _found(self, files: Files) -> Any:
        """The matrix at the result's place, or None. Raises CommandError, or anything, for no matrix."""

    @abstractmethod
    def begin(self, files: Files, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new matrix, which is not yet at its place, in place of what a killed run has left of one."""

    @abstractmethod
    def go_on(self, files: Files) -> Any:
        """What the same command has begun. Raises CommandError if it is gone."""

    @abstractmethod
    def finish(self) -> None:
        """Give the matrix, which is complete, its place."""

    @abstractmethod
    def give_up(self, keep: bool) -> None:
        """End before the matrix is complete: *keep* what there is of it, to go on, or remove it."""

    def _gone(self) -> CommandError:
        return CommandError(
            f"{self.place.text}: {self.checkpoint} holds finished tiles of another OUT, or of one that is "
            "gone; delete that folder to start anew"
        )

    def _no_matrix(self, what: str) -> CommandError:
        return CommandError(f"{self.place.text}: {what}; name another, of {KINDS}")


def _refuse(written: Mapping[str, Path], path: Path, text: str) -> None:
    for name, at in written.items():
        if overlap(at, path):
            raise CommandError(f"{at}: {name} is, or lies in or around, {text}; name another")


def _is_zarr_array(folder: Path) -> bool:
    return (folder / ".zarray").is_file() or zarr_json(folder).get("node_type") == "array"


def zarr_json(folder: Path) -> dict[str, Any]:
    """What Zarr's format 3 says of a folder; empty if nothing."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((folder / "zarr.json").read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


class Beside(Result):
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
        found = {path.name for path in self.folder.iterdir()} - {_LOCK, _NEW}
        if found:
            self._lock.release(remove=True)
            self._lock = None
            raise CommandError(
                f"{self.folder}: it holds {', '.join(sorted(found))}, put there by a run that was killed "
                f"while it replaced {self.place.text}, or by somebody else; move that, and delete the folder"
            )

    def begin(self, files: Files, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        self.folder.mkdir(exist_ok=True)
        self._own()
        _remove(self.staged)
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
        try:
            if identity(root) != self._seen:
                raise OSError("somebody else has changed OUT meanwhile")
            self._make_way(root)
            os.replace(self.staged, root)
        except Exception as error:
            self.give_up(keep=True)
            raise CommandError(
                f"{self.place.text}: the result is complete in {self.staged}: {error}"
            ) from error
        self._end()
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
        if self._lock is not None and keep:
            self._lock.release(remove=True)
        elif self._lock is not None:
            self._end()

    def _end(self) -> None:
        if self._lock is not None:
            self._lock.release(remove=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
